// What PyScript loads as "the interpreter". PyScript's configuration cannot say where Pyodide and its lock file are, or
// with which options it starts; this module can: all of it lies beside the module, on the page's own origin.
import { loadPyodide as load, version } from './pyodide.mjs';

export { version };

/** Pyodide, with the packages that `options` names; as its own `loadPyodide`. */
export async function loadPyodide(options = {}) {
  let packages;
  const noteFolder = (files, { sitePackages }) => { packages = sitePackages; };
  const python = await load({ fsInit: noteFolder, ...options });
  if (packages) emptyLibraries(python.FS, packages);
  return python;
}

// Pyodide has loaded every library of the packages, and never reads its file again: 5 MB of a tab's memory.
function emptyLibraries(files, folder) {
  for (const name of files.readdir(folder)) {
    const path = `${folder}/${name}`;
    if (name.endsWith('.so')) files.truncate(path, 0);
    else if (!name.startsWith('.') && files.isDir(files.stat(path).mode)) emptyLibraries(files, path);
  }
}
