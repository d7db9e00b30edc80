// Runs Python that a model wrote where it can reach nothing: the page's side.
//
// Each run has a frame of its own, which is removed when the run is over. The frame is sandboxed, so its origin is nobody's:
// none of our storage, no page to touch. Its policy forbids every connection, and it inherits the page's own, which lets it
// show nothing from anywhere. In it a worker runs `sandbox_worker.mjs` in a fresh Python. An origin that is nobody's can
// fetch nothing of ours, so the page fetches all that is needed, when it is first needed, and passes it in.

const STARTS_WITHIN = 60; // seconds; it takes one or two, on a slow or busy device more

// The frame's one script. It passes on what the worker says, without what nobody reads: in browsers that give the frame a
// process of its own, the page is not flooded. The page's policy (tooling/csp.py) names its hash, and so lets it run in a
// frame that inherits the policy; anywhere else it does nothing.
const FRAME_SCRIPT = `
addEventListener('message', ({ data: { script, task }, ports: [port], source }) => {
  if (source !== parent || origin !== 'null') return;
  const worker = new Worker(URL.createObjectURL(script));
  const most = 2 * (task.characters + 1);
  const cut = (text) => typeof text === 'string' ? text.slice(0, most) : '';
  let room = most;
  worker.onmessage = ({ data }) => {
    if (typeof data?.output !== 'string') {
      port.postMessage({ started: data?.started === true, ended: cut(data?.ended), text: cut(data?.text) });
    } else if (room > 0 && data.output !== '') {
      const output = data.output.slice(0, room);
      room -= output.length;
      port.postMessage({ output });
    }
  };
  worker.onerror = ({ message }) => port.postMessage({ ended: 'broken', text: String(message) });
  worker.postMessage(task);
}, { once: true });
`;
const FRAME_SCRIPT_HASH = 'sha256-2xp6waCudQ9ja5ILOjIf/6TYHg0oQjAqlNrIp+XQA/8=';
const FRAME = `<!doctype html>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '${FRAME_SCRIPT_HASH}' 'wasm-unsafe-eval'; worker-src blob:; base-uri 'none'; form-action 'none'">
<script>${FRAME_SCRIPT}</script>`;

let obtained = null;

/**
 * Run what a RunCode message says.
 *
 * @param {string} request the message's JSON text.
 * @param {(answer: string) => void} tell is given the JSON text of the CodeRan message; not called after a stop.
 * @returns {() => void} what stops the run.
 */
export function start(request, tell) {
  const { run, code, seconds, megabytes, characters } = JSON.parse(request);
  const frame = document.createElement('iframe');
  frame.setAttribute('sandbox', 'allow-scripts');
  frame.srcdoc = FRAME;
  frame.hidden = true;
  const { port1: port, port2: inner } = new MessageChannel();
  // One more than allowed says that there was more. They are counted as Python does; for JavaScript each is one or two.
  const most = characters + 1;
  const cut = (text) => Array.from(text.slice(0, 2 * most)).slice(0, most).join('').toWellFormed();
  let started = false;
  let output = '';
  let timer = 0;

  const close = () => {
    clearTimeout(timer);
    port.onmessage = null;
    port.close();
    frame.remove();
  };
  const end = (ended, text) => {
    close();
    tell(JSON.stringify({ type: 'CodeRan', run, ended, output: cut(output), text: cut(text) }));
  };

  // What comes through the port may be anything: the code can at most lie about itself.
  port.onmessage = ({ data }) => {
    if (data?.started === true && !started) {
      started = true;
      clearTimeout(timer);
      timer = setTimeout(() => end('time', ''), seconds * 1000);
    } else if (typeof data?.output === 'string') {
      output = (output + data.output).slice(0, 2 * most);
    } else {
      const known = ['done', 'error', 'memory'].includes(data?.ended);
      end(known ? data.ended : 'broken', typeof data?.text === 'string' ? data.text : '');
    }
  };

  const loaded = new Promise((resolve) => { frame.onload = resolve; });
  document.body.append(frame);
  obtained ??= obtain();
  Promise.all([obtained, loaded]).then(
    ([{ script, files }]) => {
      if (!frame.isConnected) return; // stopped meanwhile
      timer = setTimeout(() => end('broken', `Python did not start within ${STARTS_WITHIN} seconds`), STARTS_WITHIN * 1000);
      frame.contentWindow.postMessage({ script, task: { code, files, megabytes, characters } }, '*', [inner]);
    },
    (error) => {
      obtained = null; // the next run tries again
      if (frame.isConnected) end('broken', error.message);
    },
  );
  return close;
}

/** What a run needs, as Blobs, which the browser keeps outside of this page's memory. */
async function obtain() {
  const [runtime, loader, worker, wasm, library, lock, runner] = await Promise.all([
    file('pyodide/pyodide.asm.mjs'),
    file('pyodide/pyodide.js'),
    file('sandbox_worker.mjs'),
    file('pyodide/pyodide.asm.wasm'),
    file('pyodide/python_stdlib.zip'),
    file('pyodide/pyodide-lock.json'),
    file('sandbox_run.py'),
  ]);
  // Browsers start no module as a worker where the origin is nobody's. So all becomes one script without imports.
  const plain = (await runtime.text()).replaceAll('import.meta.url', 'location.href').replace(/export default \w+;\s*$/, '');
  const script = new Blob(['(() => {', plain, '\n', loader, '\n', worker, '\n})();'], { type: 'text/javascript' });
  return { script, files: { wasm, library, lock: JSON.parse(await lock.text()), runner: await runner.text() } };
}

async function file(address) {
  const answer = await fetch(new URL(address, import.meta.url));
  if (!answer.ok) throw new Error(`${address} could not be loaded: status ${answer.status}`);
  return answer.blob();
}
