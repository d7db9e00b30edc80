// Runs Python in the worker: `runPython(code, values)` resolves to {value} (JSON) or {error} (a traceback). What Python
// itself posts is dispatched as the event "posted".
const worker = new Worker(`worker.mjs${location.search}`, { type: 'module' });
const waiting = new Map();
let calls = 0;

worker.onmessage = ({ data }) => {
  const { call, ...outcome } = data;
  if (call === undefined) return dispatchEvent(new CustomEvent('posted', { detail: data }));
  waiting.get(call)(outcome);
  waiting.delete(call);
};

window.runPython = (code, values) =>
  new Promise((resolve) => {
    waiting.set(++calls, resolve);
    worker.postMessage({ call: calls, code, values, page: document.baseURI });
  });
