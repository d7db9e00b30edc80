// Pyodide as the site has it, with the packages that the address names, or else with the site's own. Names that the code
// defines stay for the next call.
import { loadPyodide } from '../pyodide/shim.mjs';

const named = new URLSearchParams(self.location.search).getAll('package');
const starting = loadPyodide({ packages: named.length ? named : ['numpy', 'minijinja', 'pyruntime'] });

onmessage = async ({ data: { call, code, values, page } }) => {
  try {
    const python = await starting;
    python.globals.set('page_url', new URL('../', page).href);
    for (const [name, value] of Object.entries(values)) python.globals.set(name, python.toPy(value));
    python.globals.set('_result', await python.runPythonAsync(code));
    postMessage({ call, value: python.runPython('import json; json.dumps(_result)') });
  } catch (error) {
    postMessage({ call, error: String(error) });
  }
};
