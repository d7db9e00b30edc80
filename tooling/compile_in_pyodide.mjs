// `node compile_in_pyodide.mjs PYODIDE FOLDER`: Python files compiled beside themselves, by the Python of the page.
// FOLDER/jobs.json says what; `_compile` in compiled.py writes it.
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [pyodide, folder] = process.argv.slice(2).map((path) => resolve(path));
const { loadPyodide } = await import(pathToFileURL(`${pyodide}/pyodide.mjs`));
// Sets are written into compiled files in the order of their hashes.
const python = await loadPyodide({ env: { PYTHONHASHSEED: '0' } });
python.mountNodeFS('/mounted', folder);
const compileAll = `
import importlib
import json
import sys
from pathlib import Path
from py_compile import PycInvalidationMode, compile

jobs = json.loads(Path("/mounted/jobs.json").read_text())
for job in jobs:
    for name in job["imports"] or ():
        importlib.import_module(name)
specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
imported = {spec.origin for spec in specs if spec is not None}
for number, job in enumerate(jobs):
    root = Path("/mounted", str(number))
    for path in sorted(root.rglob("*.py")):
        place = f"{job['folder']}/{path.relative_to(root).as_posix()}"
        if job["imports"] is None or place in imported:
            compile(
                path,
                cfile=path.with_suffix(".pyc"),
                dfile=place,
                doraise=True,
                optimize=2,
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            )
`;
try {
  python.runPython(compileAll);
} catch (error) {
  console.error(error.message); // Node would show a page of Pyodide's source before it
  process.exitCode = 1;
}
