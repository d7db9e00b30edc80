// Calls of kernel exports on copies of an arena: node kernels.mjs FILE.wasm. Each line of input is a job
// {"arena": file, "call": export, "arguments": [numbers, or {"place": byte offset in the arena}]}; the file is written
// back, and the result printed.

import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

const PAGE = 65536;
const [file] = process.argv.slice(2);
const memory = new WebAssembly.Memory({ initial: 200, maximum: 65535, shared: file.includes("shared") });
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(file)), { env: { memory } });
const base = Math.ceil(exports.__heap_base.value / PAGE) * PAGE;

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  const arena = readFileSync(job.arena);
  const missing = Math.ceil((base + arena.length - memory.buffer.byteLength) / PAGE);
  if (missing > 0) memory.grow(missing);
  const bytes = new Uint8Array(memory.buffer, base, arena.length);
  bytes.set(arena);
  const result = exports[job.call](...job.arguments.map((a) => (typeof a === "object" ? base + a.place : a)));
  writeFileSync(job.arena, bytes);
  console.log(JSON.stringify(result ?? null));
}
