// node micropython.mjs MICROPYTHON_DIR WEB_DIR SCRIPT...: runs each script in one MicroPython, with the page's modules at hand.
import fs from 'node:fs';
import path from 'node:path';

const [folder, web, ...scripts] = process.argv.slice(2);
const { loadMicroPython } = await import(path.resolve(folder, 'micropython.mjs'));
const python = await loadMicroPython({ heapsize: 8 << 20, stdout: console.log, stderr: console.error });

python.FS.mkdir('ui');
for (const name of ['protocol.py', ...fs.readdirSync(path.join(web, 'ui')).map((file) => `ui/${file}`)]) {
  if (name.endsWith('.py')) python.FS.writeFile(name, fs.readFileSync(path.join(web, name)));
}
for (const script of scripts) python.runPython(fs.readFileSync(script, 'utf8'));
process.exit(0); // the interpreter keeps Node waiting for input
