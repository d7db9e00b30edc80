// The inside of the sandbox: runs a piece of Python that a model wrote, once, in a Python of its own.
//
// `sandbox.mjs` puts this behind Pyodide's own text, inside one function. The code is taken for hostile. What keeps it in are
// the frame's origin and policy, which the worker has inherited; this file is the second wall. When the code begins, the
// browser's names are gone, Python's bridge to JavaScript cannot be imported, text cannot become JavaScript (the policy), and
// what speaks to the frame is in a closure that nothing of Python's leads to.

const ADDRESS = 'sandbox:/'; // of Pyodide's files; nobody is asked, see `serve`
const WASM_PAGE = 65_536; // bytes
const NO_SPACE = 51; // ENOSPC, as WASI numbers it
const ENTRY_BYTES = 1024; // more than a file, link or directory takes beside its name and what is in it

// The browser's names that Python needs while it runs; besides them only JavaScript's own stay.
const NEEDED = ['WebAssembly', 'clearTimeout', 'crypto', 'performance', 'setTimeout', 'TextDecoder', 'TextEncoder'];
const LANGUAGE = [
  'AggregateError', 'Array', 'ArrayBuffer', 'BigInt', 'BigInt64Array', 'BigUint64Array', 'Boolean', 'DataView', 'Date', 'Error',
  'EvalError', 'FinalizationRegistry', 'Float32Array', 'Float64Array', 'Function', 'Infinity', 'Int16Array', 'Int32Array',
  'Int8Array', 'Iterator', 'JSON', 'Map', 'Math', 'NaN', 'Number', 'Object', 'Promise', 'Proxy', 'RangeError', 'ReferenceError',
  'Reflect', 'RegExp', 'Set', 'String', 'Symbol', 'SyntaxError', 'TypeError', 'URIError', 'Uint16Array', 'Uint32Array',
  'Uint8Array', 'Uint8ClampedArray', 'WeakMap', 'WeakRef', 'WeakSet', 'decodeURI', 'decodeURIComponent', 'encodeURI',
  'encodeURIComponent', 'escape', 'eval', 'globalThis', 'isFinite', 'isNaN', 'parseFloat', 'parseInt', 'undefined', 'unescape',
];
const KEPT = new Set([...NEEDED, ...LANGUAGE]);
// Of WebAssembly, what would make another memory, or code to use one.
const MAKERS = ['Instance', 'Memory', 'Module', 'Table', 'compile', 'compileStreaming', 'instantiate', 'instantiateStreaming'];
const silent = () => {};
const MUTE = { debug: silent, error: silent, info: silent, log: silent, trace: silent, warn: silent };

const post = self.postMessage.bind(self);

/** Let Pyodide's memory grow to so many bytes and no further; Python then raises MemoryError. */
function limitMemory(bytes) {
  const { prototype } = WebAssembly.Memory;
  const { grow } = prototype;
  prototype.grow = function (pages) {
    if (this.buffer.byteLength + pages * WASM_PAGE > bytes) throw new RangeError('no more memory is allowed');
    return Reflect.apply(grow, this, [pages]);
  };
}

/** Let files, with their names, grow by so many bytes in all: they are JavaScript's memory, not Pyodide's. */
function limitFiles(FS, bytes) {
  const { createNode, doTruncate, rename, symlink, write } = FS;
  let room = bytes;
  const spend = (size) => {
    if (!(size <= room)) throw new FS.ErrnoError(NO_SPACE); // so written, a size that is no number is refused too
    room -= Math.max(size, 0);
  };
  FS.createNode = (parent, name, ...rest) => {
    spend(ENTRY_BYTES + 2 * name.length);
    return Reflect.apply(createNode, FS, [parent, name, ...rest]);
  };
  FS.rename = (from, to) => {
    spend(2 * to.length);
    return Reflect.apply(rename, FS, [from, to]);
  };
  FS.symlink = (target, path) => {
    spend(2 * target.length);
    return Reflect.apply(symlink, FS, [target, path]);
  };
  FS.write = (stream, buffer, offset, length, position, ...rest) => {
    const end = (position ?? stream.position ?? 0) + length; // pipes have no position
    if (!stream.tty) spend(Math.max(length, end - (stream.node.usedBytes ?? 0)));
    return Reflect.apply(write, FS, [stream, buffer, offset, length, position, ...rest]);
  };
  FS.doTruncate = (stream, node, length) => {
    spend(length - (node.usedBytes ?? 0));
    return Reflect.apply(doTruncate, FS, [stream, node, length]);
  };
}

/** Answer Pyodide's requests for its own files. */
function serve(files) {
  self.fetch = async (address) => {
    if (String(address) === `${ADDRESS}pyodide.asm.wasm`) {
      return new Response(files.wasm, { headers: { 'Content-Type': 'application/wasm' } });
    }
    return new Response(files.library);
  };
}

/** Take away every name that Python does not need; an Error if one that does something stays. */
function strip() {
  for (const name of MAKERS) delete WebAssembly[name];
  for (let scope = globalThis; scope !== null && scope !== Object.prototype; scope = Object.getPrototypeOf(scope)) {
    for (const name of Reflect.ownKeys(scope)) {
      if (KEPT.has(name) || Reflect.deleteProperty(scope, name)) continue;
      if (typeof scope[name] === 'function' || typeof scope[name] === 'object') {
        throw new Error(`${String(name)} cannot be taken from the sandbox in this browser`);
      }
    }
  }
}

/** What takes the bytes that Python writes: sends the first `characters` + 1 characters and a few more, and drops the rest. */
function output(characters) {
  const decoder = new TextDecoder();
  let room = 2 * (characters + 1); // a character is one or two of JavaScript's
  return (bytes) => {
    if (room > 0) {
      const text = decoder.decode(bytes, { stream: true }).slice(0, room);
      room -= text.length;
      if (text !== '') post({ output: text });
    }
    return bytes.length;
  };
}

async function startPython({ wasm, library, lock, runner }, bytes, characters) {
  serve({ wasm, library });
  self.importScripts = undefined; // by calling it Pyodide finds out that it is in a worker that is no module, and refuses
  const python = await self.loadPyodide({
    createPyodideModule: _createPyodideModule,
    indexURL: ADDRESS,
    lockFileContents: { ...lock, packages: {} },
    stderr: () => {},
  });
  python._api.on_fatal = (error) => post({ ended: 'broken', text: String(error) });
  limitFiles(python.FS, bytes);
  const write = output(characters);
  python.setStdout({ write, isatty: true }); // a terminal gets every line when it ends, not when a buffer is full
  python.setStderr({ write, isatty: true });
  python.setStdin({ stdin: () => null });
  python.runPython(runner);
  python.globals.get('close_the_bridge')();
  return python.globals.get('run');
}

self.onmessage = async ({ data: { code, files, megabytes, characters } }) => {
  self.onmessage = null;
  try {
    const bytes = megabytes * 1_048_576;
    limitMemory(bytes);
    const run = await startPython(files, bytes, characters);
    strip();
    globalThis.console = MUTE;
    post({ started: true });
    const [ended, text] = await run(code, characters);
    post({ ended, text });
  } catch (error) {
    post({ ended: 'broken', text: String(error) });
  }
};
