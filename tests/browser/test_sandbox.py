"""Python that a model wrote: what it can do in its sandbox, and that it reaches nothing from there.

Two walls are tested apart. In a site whose `sandbox_worker.mjs` is hostile JavaScript, the frame's origin and policy hold
alone. In the real site, Python finds no way to JavaScript, and JavaScript no name of the browser's.
"""

from __future__ import annotations

import contextlib
import json

import pytest
from playwright.sync_api import expect

from tests.browser.chat_page import ChatPage
from tests.browser.faulty_server import FaultyServer, serve, status
from tests.browser.pyodide_harness import copy_site
from tooling.server import Server

# Runs code in the sandbox, as the page's Python does. Unlike there, several may be begun at once.
RUN = """async ([code, limits]) => {
    const { start } = await import(new URL('sandbox.mjs', document.baseURI).href);
    const request = { run: 7, code, seconds: 60, megabytes: 256, characters: 2000, ...limits };
    return JSON.parse(await new Promise((tell) => start(JSON.stringify(request), tell)));
}"""

# All that a worker has for reaching out: what came of each attempt, "reached" for one that did.
REACHING_OUT = """
const attempts = {
    fetch: async () => { await fetch(task.url + 'pwned'); },
    'fetch, not asking to read': async () => { await fetch(task.url + 'pwned', { mode: 'no-cors' }); },
    'fetch of the page': async () => { await fetch(task.page + 'index.html', { mode: 'no-cors' }); },
    XMLHttpRequest: () => { const request = new XMLHttpRequest(); request.open('GET', task.url + 'pwned', false); request.send(); },
    WebSocket: () => new Promise((resolve, reject) => {
        const socket = new WebSocket(task.url.replace('http', 'ws') + 'pwned');
        socket.onopen = resolve;
        socket.onerror = reject;
    }),
    EventSource: () => new Promise((resolve, reject) => {
        const source = new EventSource(task.url + 'pwned');
        source.onopen = resolve;
        source.onerror = reject;
    }),
    WebTransport: () => new WebTransport(task.url.replace('http', 'https') + 'pwned').ready,
    FontFace: () => new FontFace('f', `url(${task.url}pwned)`).load(),
    importScripts: () => importScripts(task.url + 'pwned.js'),
    import: () => import(task.url + 'pwned.js'),
    'import of the page\\'s own': () => import(task.page + 'early.mjs'),
    'import of a text': () => import('data:text/javascript,'),
    eval: () => eval('1'),
    Function: () => Function('return 1')(),
    Worker: () => new Promise((resolve, reject) => {
        const worker = new Worker(task.page + 'early.mjs');
        worker.onmessage = resolve;
        worker.onerror = reject;
    }),
    indexedDB: () => new Promise((resolve, reject) => {
        const request = indexedDB.open('tinypylm-conversations');
        request.onsuccess = resolve;
        request.onerror = reject;
    }),
    caches: () => caches.open('x'),
    'navigator.storage': () => navigator.storage.getDirectory(),
    'navigator.locks': () => navigator.locks.request('x', () => {}),
    localStorage: () => localStorage.setItem('x', 'y'),
    cookies: () => cookieStore.set('x', 'y'),
    parent: () => parent.document,
    top: () => { top.location = task.url + 'pwned'; },
    open: () => open(task.url + 'pwned'),
    serviceWorker: () => navigator.serviceWorker.register(task.page + 'early.mjs'),
    Notification: async () => { if (Notification.permission !== 'granted') throw new Error('denied'); },
    SharedArrayBuffer: () => new SharedArrayBuffer(8),
};
const tried = {};
for (const [name, attempt] of Object.entries(attempts)) {
    try {
        await Promise.race([attempt(), new Promise((_, reject) => setTimeout(reject, 1000, 'nothing happened'))]);
        tried[name] = 'reached';
    } catch (error) {
        tried[name] = String(error?.message ?? error?.type ?? error);
    }
}
"""

# Beside the page, in the same browser: whether the sandbox speaks to it.
LISTEN = """() => {
    window.heard = [];
    addEventListener('message', ({ data }) => heard.push(data));
    for (const name of ['x', 'tinypylm']) new BroadcastChannel(name).onmessage = ({ data }) => heard.push(data);
}"""


# A worker's script that runs no Python: the code tells what else it does.
HOSTILE = f"""self.onmessage = async ({{ data }}) => {{
    const task = JSON.parse(data.code);
    for (const said of task.says ?? []) postMessage(said);
    if (task.pours) for (;;) postMessage({{ output: task.pours.repeat(task.times ?? 1) }});
    if (task.repeats) setInterval(() => task.repeats.forEach((said) => postMessage(said)), 50);
    if (task.fills) for (const all = [];;) all.push(new Uint8Array(1 << 28).fill(1));
    if (task.url) {{
        new BroadcastChannel('tinypylm').postMessage('forged');
        {REACHING_OUT}
        postMessage({{ ended: 'done', text: JSON.stringify(tried) }});
    }}
}};
"""


def change(path, text):
    path.unlink()  # it may be a hard link
    path.write_text(text, encoding="utf-8")


class Sandbox:
    """`sandbox(code, seconds=…)` runs code in the page's sandbox and gives the answer."""

    def __init__(self, page, url, requests):
        self.page, self.url, self.requests = page, url, requests

    def __call__(self, code, **limits):
        return self.page.evaluate(RUN, [code, limits])

    def begin(self, code, **limits):
        """Run code and wait for nothing; `window.answer` will hold the answer."""
        self.page.evaluate(
            f"(given) => {{ window.answer = null; ({RUN})(given).then((a) => window.answer = a) }}", [code, limits]
        )

    def frame(self):
        """The frame of the run that is going on."""
        self.page.wait_for_selector("iframe", state="attached")
        return self.page.frames[-1]


@contextlib.contextmanager
def opened(browser, site, *, isolation=True):
    """A Sandbox in a page of the site, whose engine has not been loaded."""
    requests = []
    with (
        Server(site, isolation=isolation, on_request=requests.append).running() as server,
        contextlib.closing(browser.new_context()) as context,
    ):
        chat = ChatPage(context.new_page()).open(server.url)
        yield Sandbox(chat.page, server.url, requests)


@pytest.fixture(scope="module", params=[True, False], ids=["isolated", "not isolated"])
def sandbox(request, browser, parrot_site):
    with opened(browser, parrot_site, isolation=request.param) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def one_sandbox(browser, parrot_site):
    with opened(browser, parrot_site) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def hostile_site(parrot_site, tmp_path_factory):
    site = copy_site(parrot_site, tmp_path_factory.mktemp("hostile") / "site")
    change(site / "sandbox_worker.mjs", HOSTILE)
    return site


@pytest.fixture(scope="module")
def hostile_sandbox(browser, hostile_site):
    """A Sandbox whose worker does what the code, as JSON, says."""
    with opened(browser, hostile_site) as sandbox:
        sandbox.page.evaluate(LISTEN)
        yield lambda limits=None, **task: sandbox(json.dumps(task), **(limits or {}))


# ----------------------------------------------------------------------------------------------------- what it is for


def test_what_the_code_prints_and_its_value_come_back(sandbox):
    answer = sandbox("import sys\nprint('hi 😀')\nprint('oh', file=sys.stderr)\nsum(range(5)), 'é\\0'")
    assert answer == {"type": "CodeRan", "run": 7, "ended": "done", "output": "hi 😀\noh\n", "text": "(10, 'é\\x00')"}
    assert sandbox.page.locator("iframe").count() == 0


def test_an_error_comes_back_as_its_traceback(one_sandbox):
    answer = one_sandbox("def half(x):\n    return x / 0\nhalf(1)")
    assert (answer["ended"], answer["output"]) == ("error", "")
    assert answer["text"].startswith('Traceback (most recent call last):\n  File "<python>", line 3, in <module>\n')
    assert answer["text"].endswith("ZeroDivisionError: division by zero\n")


def test_the_standard_library_works_and_so_does_waiting(one_sandbox):
    answer = one_sandbox(
        "import asyncio, ctypes, dataclasses, decimal, hashlib, json, os, pickle, random, re, sqlite3, statistics, time\n"
        "async def main():\n"
        "    return await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.sleep(0.02, 2))\n"
        "open('x', 'w').write('kept')\n"
        "time.sleep(0.01)\n"
        "[asyncio.run(main()), await main(), open('x').read(), hashlib.sha256(b'').hexdigest()[:4],\n"
        " sqlite3.connect(':memory:').execute('select 1 + 1').fetchone(), len(os.urandom(3)), re.sub('a', 'b', 'aa')]"
    )
    assert (answer["ended"], answer["output"]) == ("done", ""), answer
    assert answer["text"] == "[[1, 2], [1, 2], 'kept', 'e3b0', (2,), 3, 'bb']"


def test_nothing_of_a_run_is_there_in_the_next(one_sandbox):
    code = "import builtins, os\nprint(hasattr(builtins, 'kept'), os.path.exists('kept'))\nbuiltins.kept = open('kept', 'w')"
    assert [one_sandbox(code)["output"] for _ in range(2)] == ["False False\n"] * 2


# ---------------------------------------------------------------------------------------------------------- its limits


def test_code_without_end_is_ended_and_the_page_stays_usable_meanwhile(sandbox):
    sandbox.begin("print('begun')\nwhile True: pass", seconds=3)
    sandbox.frame()
    chat = ChatPage(sandbox.page)
    assert chat.ask("Still there?") == "Still there?"
    sandbox.page.wait_for_function("answer !== null")
    answer = sandbox.page.evaluate("answer")
    assert (answer["ended"], answer["output"]) == ("time", "begun\n")
    assert sandbox.page.locator("iframe").count() == 0
    chat.start_anew()


@pytest.mark.parametrize("code", ["bytearray(10**9)", "x = [0]\nwhile True: x = x + x"])
def test_memory_is_limited(one_sandbox, code):
    answer = one_sandbox(f"print('begun')\n{code}")
    assert (answer["ended"], answer["output"]) == ("memory", "begun\n")
    assert "MemoryError" in answer["text"]


def test_files_are_limited_as_well(one_sandbox):
    answer = one_sandbox(
        "def grow():\n"
        "    for i in range(4): open(f'{i}', 'wb').write(b'x' * 10**8)\n"
        "def stretch():\n"
        "    open('x', 'wb').truncate(10**9)\n"
        "def leap():\n"
        "    with open('y', 'wb') as file: file.seek(10**9); file.write(b'x')\n"
        "for attempt in (grow, stretch, leap):\n"
        "    try: attempt()\n"
        "    except OSError as error: print(error)\n"
    )
    assert (answer["ended"], answer["output"]) == ("done", "[Errno 51] No space left on device\n" * 3)


@pytest.mark.parametrize(
    "filling",
    [
        "os.symlink('x' * 10**7, f'link{i}')",
        "os.mkdir('d' * 10**7 + str(i))",
        "os.rename('here', 'here' + 'd' * 10**7 + str(i % 2)); os.rename('here' + 'd' * 10**7 + str(i % 2), 'here')",
        "os.write(pipe, b'x' * 10**6)",
    ],
)
def test_names_links_and_pipes_count_as_files_do(one_sandbox, filling):
    answer = one_sandbox(
        "import os\n"
        "os.mkdir('here')\n"
        "pipe = os.pipe()[1]\n"
        "try:\n"
        f"    for i in range(300): {filling}\n"
        "except OSError as error: print(error.strerror)\n"
    )
    assert (answer["ended"], answer["output"]) == ("done", "No space left on device\n")


def test_files_are_limited_behind_a_pipe_too(one_sandbox):
    answer = one_sandbox(
        "import os\n"
        "os.write(os.pipe()[1], b'x')\n"
        "try: open('x', 'wb').truncate(10**9)\n"
        "except OSError as error: print(error)\n"
    )
    assert (answer["ended"], answer["output"]) == ("done", "[Errno 51] No space left on device\n")


def test_characters_are_counted_as_python_does(one_sandbox):
    smile = "'\\U0001f600'"
    for code, field in (
        (f"print({smile} * %d)", "output"),
        (f"{smile} * %d", "text"),
        (f"raise ValueError({smile} * %d)", "text"),
    ):
        assert len(one_sandbox(code % 2100)[field]) == 2001, "one character more than allowed says that there was more"
        assert one_sandbox(code % 1500)[field].count("😀") == 1500


def test_a_flood_of_output_is_cut_and_fills_nothing(one_sandbox):
    line = "x" * 999
    answer = one_sandbox(f"for _ in range(100_000): print('{line}')\n'done'")
    assert (answer["ended"], answer["text"]) == ("done", "'done'")
    assert answer["output"] == f"{line}\n{line}\nx", "one character more than allowed says that there was more"


def test_a_value_and_a_traceback_are_cut_too(one_sandbox):
    assert one_sandbox("'x' * 10**6")["text"] == "'" + 2000 * "x"
    answer = one_sandbox("raise ValueError('x' * 10**6)")
    assert (answer["ended"], answer["text"]) == ("error", 2000 * "x" + "\n")


@pytest.mark.parametrize("code", ["import os\nos.abort()", "import os\nos._exit(0)"])
def test_an_interpreter_that_breaks_down_is_told_at_once(one_sandbox, code):
    assert one_sandbox(code)["ended"] == "broken"


# ---------------------------------------------------------------------------------------------- the first wall, alone


@pytest.mark.parametrize("isolation", [True, False])
def test_from_the_frame_s_worker_nothing_can_be_reached(browser, hostile_site, server, isolation):
    other = server(isolation=False)
    with opened(browser, hostile_site, isolation=isolation) as sandbox:
        sandbox.page.evaluate(LISTEN)
        task = json.dumps({"url": other.url, "page": sandbox.url})
        sandbox(task)
        asked = len(sandbox.requests)
        tried = json.loads(sandbox(task, characters=20_000)["text"])
        assert {"fetch", "WebSocket", "import", "indexedDB", "localStorage", "top", "open"} < set(tried)
        assert [name for name, outcome in tried.items() if outcome == "reached"] == []
        assert other.requests == []
        assert len(sandbox.requests) == asked, "the files are there since the first run, and nothing else was asked for"
        assert sandbox.page.evaluate("heard") == []


def test_the_frame_itself_can_neither_leave_nor_touch_the_page(one_sandbox, server):
    other = server(isolation=False)
    one_sandbox.begin("while True: pass", seconds=30)
    frame = one_sandbox.frame()
    tried = frame.evaluate(
        """async (url) => {
            const attempts = {
                page: () => parent.document.title,
                top: () => { top.location.href = url; },
                storage: () => localStorage.setItem('x', 'y'),
                database: () => indexedDB.open('tinypylm-conversations'),
                cookie: () => { document.cookie = 'x=y'; },
                window: () => { if (open(url) === null) throw new Error('no window'); },
                fetch: () => fetch(url),
                image: () => new Promise((resolve, reject) => {
                    Object.assign(new Image(), { onload: resolve, onerror: reject, src: url });
                }),
                script: () => new Promise((resolve, reject) => {
                    const script = document.createElement('script');
                    document.head.append(Object.assign(script, { onload: resolve, onerror: reject, src: url }));
                }),
            };
            const reached = [];
            for (const [name, attempt] of Object.entries(attempts)) {
                try {
                    await attempt();
                    reached.push(name);
                } catch {}
            }
            const form = document.createElement('form');
            document.documentElement.append(Object.assign(form, { action: url }));
            form.submit();
            return reached;
        }""",
        other.url,
    )
    assert tried == []
    with contextlib.suppress(Exception):  # the frame may be blocked while it tries
        frame.evaluate("(url) => { location.href = url; }", other.url)
    one_sandbox.page.wait_for_function("document.querySelectorAll('iframe').length === 1")
    one_sandbox.page.evaluate("document.querySelector('iframe').remove()")
    assert other.requests == []
    assert one_sandbox.page.url == one_sandbox.url
    assert len(one_sandbox.page.context.pages) == 1


def test_the_worker_can_lie_about_its_own_run_and_about_no_other(browser, hostile_site):
    with opened(browser, hostile_site) as sandbox:
        sandbox.page.evaluate(LISTEN)
        sandbox.begin("{}")
        forged = {"type": "CodeRan", "run": 1, "ended": "done", "text": "forged"}
        answer = sandbox(json.dumps({"says": [forged] * 10}))
        assert answer == {"type": "CodeRan", "run": 7, "ended": "done", "output": "", "text": "forged"}
        assert sandbox.page.locator("iframe").count() == 1, "the other run goes on"
        assert sandbox.page.evaluate("[answer, heard]") == [None, []]


@pytest.mark.parametrize(
    "said", [None, "x", [1], {"output": 5}, {"ended": {}}, {"ended": "done", "text": 5}, {"ended": "time"}]
)
def test_whatever_the_worker_says_the_page_makes_an_answer_of_it(hostile_sandbox, said):
    answer = hostile_sandbox(says=[said])
    ended = "done" if said == {"ended": "done", "text": 5} else "broken"
    assert answer == {"type": "CodeRan", "run": 7, "ended": ended, "output": "", "text": ""}


def test_the_worker_can_neither_put_off_its_end_nor_fill_the_page(hostile_sandbox):
    answer = hostile_sandbox(
        {"seconds": 2, "characters": 5}, says=[{"started": True}], repeats=[{"output": "x" * 1000}]
    )
    assert (answer["ended"], answer["output"]) == ("time", "x" * 6)
    assert hostile_sandbox({"seconds": 2}, says=[{"started": True}] * 2)["ended"] == "broken", "its time begins once"


# What comes to the page from its sandboxes' frames: [how many messages, the longest].
COUNT_MESSAGES = """() => {
    window.heardFrames = [0, 0];
    const { set } = Object.getOwnPropertyDescriptor(MessagePort.prototype, 'onmessage');
    Object.defineProperty(MessagePort.prototype, 'onmessage', { set(hear) {
        set.call(this, hear && ((event) => {
            heardFrames[0]++;
            heardFrames[1] = Math.max(heardFrames[1], JSON.stringify(event.data).length);
            hear(event);
        }));
    } });
}"""


@pytest.mark.parametrize("flood", [{"pours": ""}, {"pours": "x"}, {"pours": "x", "times": 2**26}])
def test_a_flood_of_messages_ends_in_the_frame(browser, hostile_site, flood):
    with opened(browser, hostile_site) as sandbox:
        sandbox.page.evaluate(COUNT_MESSAGES)
        answer = sandbox(json.dumps({"says": [{"started": True}], **flood}), seconds=2, characters=1000)
        assert (answer["ended"], answer["output"]) == ("time", flood["pours"] * 1001)
        count, longest = sandbox.page.evaluate("heardFrames")
    assert count <= 2003
    assert longest < 2100


def test_what_a_worker_says_last_is_cut_before_it_reaches_the_page(browser, hostile_site):
    with opened(browser, hostile_site) as sandbox:
        sandbox.page.evaluate(COUNT_MESSAGES)
        said = [{"ended": "done", "text": "x" * 100_000, "more": "x" * 100_000}]
        assert sandbox(json.dumps({"says": said}), characters=1000)["text"] == "x" * 1001
        assert sandbox.page.evaluate("heardFrames[1]") < 2100


def test_code_that_fills_the_memory_of_the_frame_does_not_take_the_page_with_it(hostile_sandbox):
    assert hostile_sandbox({"seconds": 5}, says=[{"started": True}], fills=True)["ended"] in ("time", "broken")
    assert hostile_sandbox(says=[{"ended": "done", "text": "still there"}])["text"] == "still there"


# ------------------------------------------------------------------------------------------------------ the second wall


def test_python_has_no_way_to_javascript_or_to_the_network(sandbox, server):
    other = server(isolation=False)
    attempts = {
        "js": "import js",
        "js, by name": "__import__('js')",
        "js.fetch": "from js import fetch",
        "pyodide": "import pyodide",
        "pyodide.http": "from pyodide.http import pyfetch",
        "pyodide.ffi": "from pyodide.ffi import to_js",
        "pyodide.code": "from pyodide.code import run_js",
        "pyodide_js": "from pyodide_js import loadPackage",
        "micropip": "import micropip",
        "numpy": "import numpy",
        "urllib": f"import urllib.request; urllib.request.urlopen('{other.url}')",
        "http": f"import http.client; http.client.HTTPConnection('{other.url[7:-1]}').request('GET', '/')",
        "socket": f"import socket; socket.create_connection(('127.0.0.1', {other.url.split(':')[2][:-1]}))",
        "subprocess": "import subprocess; subprocess.run(['ls'])",
        "threads": "import threading; threading.Thread(target=print).start()",
        "browser": f"import webbrowser; webbrowser.open('{other.url}')",
        "input": "input()",
        "js, forgotten": "import sys; del sys.modules['js']; import js",
        "pyodide_js, forgotten": "import sys; del sys.modules['pyodide_js']; import pyodide_js",
        "run_js, forgotten": "import sys\nfor name in list(sys.modules):\n"
        "    if name.startswith(('pyodide', '_pyodide')): del sys.modules[name]\nfrom pyodide.code import run_js; run_js('1')",
    }
    code = "import json\nfound = {}\nfor name, attempt in json.loads(" + repr(json.dumps(attempts)) + ").items():\n"
    code += "    try:\n        exec(attempt, {})\n        found[name] = 'reached'\n"
    code += "    except Exception as error:\n        found[name] = type(error).__name__\n"
    asked = len(sandbox.requests)
    answer = sandbox(f"{code}print(json.dumps(found))")
    assert answer["ended"] == "done", answer
    found = json.loads(answer["output"])
    assert [name for name, outcome in found.items() if outcome == "reached"] == []
    assert {found[name] for name in ("js", "pyodide", "micropip")} == {"ModuleNotFoundError"}
    assert other.requests == []
    assert {request.path for request in sandbox.requests[asked:]} <= {f"/{name}" for name in FILES}


def test_python_that_digs_out_javascript_finds_no_name_of_the_browser_and_no_text_becomes_code(one_sandbox):
    answer = one_sandbox(
        "import asyncio, json\n"
        "inside = asyncio.get_running_loop().run_until_complete.__func__.__globals__\n"
        "function = inside['scheduleCallback'].constructor\n"
        "try:\n"
        "    function.new('return globalThis')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, 'unsafe-eval' in str(error))\n"
    )
    assert (answer["ended"], answer["output"]) == ("done", "JsException True\n"), answer


def test_when_the_code_begins_the_browser_s_names_are_gone(browser, parrot_site, tmp_path):
    site = copy_site(parrot_site, tmp_path / "site")
    source = (site / "sandbox_worker.mjs").read_text()
    begin = "post({ started: true });"
    assert source.count(begin) == 1
    names = "[globalThis, Object.getPrototypeOf(globalThis), Object.getPrototypeOf(Object.getPrototypeOf(globalThis))]"
    say = f"post({{ ended: 'done', text: JSON.stringify({names}.flatMap((x) => Reflect.ownKeys(x).map(String))) }});"
    change(site / "sandbox_worker.mjs", source.replace(begin, say))
    with opened(browser, site) as sandbox:
        left = set(json.loads(sandbox("1", characters=20_000)["text"]))
    assert {"Array", "setTimeout"} <= left
    gone = ("fetch XMLHttpRequest WebSocket EventSource WebTransport importScripts Worker BroadcastChannel MessageChannel "
            "indexedDB caches navigator location localStorage postMessage onmessage addEventListener close self Request "
            "Response Blob URL FontFace OffscreenCanvas SharedArrayBuffer loadPyodide _createPyodideModule")  # fmt: skip
    assert left & set(gone.split()) == set()


# ------------------------------------------------------------------------------------------------- the page and the road

FILES = (
    "sandbox.mjs",
    "sandbox_run.py",
    "sandbox_worker.mjs",
    "pyodide/pyodide.asm.mjs",
    "pyodide/pyodide.asm.wasm",
    "pyodide/pyodide.js",
    "pyodide/pyodide-lock.json",
    "pyodide/python_stdlib.zip",
)


def test_the_files_are_fetched_by_the_page_when_code_first_runs_and_once(browser, parrot_site):
    with opened(browser, parrot_site) as sandbox:
        before = [request.path for request in sandbox.requests]
        assert not [path for path in before if "sandbox" in path.rpartition("/")[2] and not path.endswith("_link.py")]
        assert "/pyodide/pyodide.js" not in before
        assert sandbox("1")["ended"] == "done"
        after = [request.path for request in sandbox.requests[len(before) :]]
        assert sorted(after) == sorted(f"/{name}" for name in FILES)
        assert sandbox("1")["ended"] == "done"
        assert len(sandbox.requests) == len(before) + len(after)


def test_on_a_host_that_sends_no_headers_the_sandbox_is_as_closed(browser, parrot_site, server):
    other = server(isolation=False)
    with FaultyServer(parrot_site, policy=False) as host, contextlib.closing(browser.new_context()) as context:
        sandbox = Sandbox(ChatPage(context.new_page()).open(f"{host.url}index.html").page, host.url, None)
        assert sandbox("6 * 7")["text"] == "42"
        sandbox.page.reload()
        ChatPage(sandbox.page).wait_for("ready")
        host.answers["sandbox_worker.mjs"] = serve(HOSTILE.encode(), kind="text/javascript")
        tried = json.loads(sandbox(json.dumps({"url": other.url, "page": host.url}), characters=20_000)["text"])
    assert [name for name, outcome in tried.items() if outcome == "reached"] == []
    assert other.requests == []


def test_a_file_that_does_not_arrive_is_told_and_the_next_run_asks_again(browser, parrot_site):
    with FaultyServer(parrot_site) as host, contextlib.closing(browser.new_context()) as context:
        sandbox = Sandbox(ChatPage(context.new_page()).open(f"{host.url}index.html").page, host.url, None)
        host.answers["sandbox_run.py"] = status(503)
        answer = sandbox("1")
        assert (answer["ended"], answer["text"]) == ("broken", "sandbox_run.py could not be loaded: status 503")
        del host.answers["sandbox_run.py"]
        assert sandbox("6 * 7")["text"] == "42"


def test_the_engine_worker_has_code_run_and_hears_what_came_of_it(parrot):
    assert parrot.ask("/python print('hi')\n6 * 7").split() == ["Output:", "hi", "Value:", "42"]
    expect(parrot.page.locator("iframe")).to_have_count(0)


def test_stop_ends_the_code_and_the_next_piece_runs(parrot):
    parrot.say("/python while True: pass")
    parrot.page.wait_for_selector("iframe", state="attached")
    parrot.stop.click()
    parrot.wait_for("ready")
    expect(parrot.page.locator("iframe")).to_have_count(0)
    assert parrot.ask("/python 6 * 7").split() == ["Value:", "42"]
