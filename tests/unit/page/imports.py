"""Run by MicroPython: imports every module of the page, and compiles the one that starts it."""

import os

for name in sorted(os.listdir("ui")):  # noqa: PTH208 - no pathlib there
    if name.endswith(".py"):
        if name == "main.py":  # importing it would start the page
            with open("ui/main.py") as file:  # noqa: PTH123 - as above
                compile(file.read(), name, "exec")
        else:
            __import__("ui." + name[:-3])
        print(name)
