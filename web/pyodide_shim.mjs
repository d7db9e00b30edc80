// What PyScript loads as "the interpreter". PyScript's configuration cannot say where Pyodide and its lock file are, or
// with which options it starts; this module can: all of it lies beside the module, on the page's own origin.
export { loadPyodide, version } from './pyodide.mjs';
