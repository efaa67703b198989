"""A Stead provider (docs/guides/provider-protocol.md): processes of this host, without any isolation."""
import base64, contextlib, json, os, signal, subprocess, sys, tempfile, threading, time
lock, instances, commands = threading.Lock(), {}, {}
def send(**message):
    with lock: print(json.dumps(message), flush=True)
def raw(value):  # what is not UTF-8 comes as base64
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()
def kill(process, number):
    with contextlib.suppress(ProcessLookupError): os.killpg(process.pid, number)
def end(process, grace_ms):
    kill(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired): process.wait(grace_ms / 1000)
    kill(process, signal.SIGKILL)
def pump(name, stream, process):
    while data := os.read(getattr(process, stream).fileno(), 32768):
        process.window.acquire()  # no more messages on the way than the host wants
        process.total[stream] += len(data)
        send(event="output", command=name, stream=stream, data=base64.b64encode(data).decode())
def watch(name, process, config):
    began, limit, how = time.monotonic(), config["timeout_ms"], None
    pumps = [threading.Thread(target=pump, args=(name, stream, process)) for stream in process.total]
    for thread in pumps: thread.start()
    try: process.wait(limit and limit / 1000)
    except subprocess.TimeoutExpired: how = end(process, config.get("grace_ms", 2000)) or {"timed_out": True}
    kill(process, signal.SIGKILL)  # what the first process left behind
    for thread in pumps: thread.join()
    code, took = commands.pop(name).wait(), int((time.monotonic() - began) * 1000)
    how = how or ({"exit_code": 128 - code, "signal": -code} if code < 0 else {"exit_code": code})
    send(event="exit", command=name, duration_ms=took, total_bytes=list(process.total.values()), **how)
def provision(m):
    if "image" in m["config"]: raise LookupError("a process has no image")
    home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # gone at the latest when this program ends
    instances[m["instance"]] = {"home": home, "workdir": home.name, "env": [], **m["config"]}
    return {"id": m["instance"], "status": "running"}
def shutdown(m):
    instance = instances.pop(m["instance"], None)
    for process in [p for p in commands.values() if p.instance == m["instance"]]: end(process, 0)
    if instance: instance["home"].cleanup()
def start(m):
    base, pipe, argv = instances[m["instance"]], subprocess.PIPE, ['exec "$@"', "sh", *map(raw, m.get("argv", []))]
    config = {**base, **m["config"], "env": base["env"] + m["config"].get("env", [])}  # its keys on top
    process = subprocess.Popen(["/bin/sh", "-c", *([m["shell"]] if "shell" in m else argv)], bufsize=0, stdout=pipe,
        stderr=pipe, stdin=pipe if m["stdin"] else subprocess.DEVNULL, cwd=raw(config["workdir"]), start_new_session=True,
        env={**os.environb, **{raw(key): raw(value) for key, value in config["env"]}})
    process.instance, process.window = m["instance"], threading.Semaphore(m["window"])
    process.total, commands[m["command"]] = {"stdout": 0, "stderr": 0}, process
    threading.Thread(target=watch, args=(m["command"], process, config)).start()
def stdin(m):
    commands[m["command"]].stdin.close() if m.get("end") else commands[m["command"]].stdin.write(base64.b64decode(m["data"]))
OPS = {"provision": provision, "shutdown": shutdown, "start": start, "stdin": stdin, "probe": lambda m: {"available": True},
    "hello": lambda m: {"version": "stead-provider/1"}, "ack": lambda m: commands[m["command"]].window.release(m["count"]),
    "list": lambda m: {"instances": [{"id": name, "status": "running"} for name in list(instances)]},
    "status": lambda m: {"instance": {"id": m["instance"], "status": "running"} if m["instance"] in instances else None},
    "signal": lambda m: kill(commands[m["command"]], m["signal"]), "cancel": lambda m: end(commands[m["command"]], m["grace_ms"])}
def answer(m):
    try: reply = {"ok": OPS[m["op"]](m) or {}}
    except (LookupError, OSError) as error:
        kinds = {"provision": "unsupported", "start": "launch_failed" if isinstance(error, OSError) else "no_instance"}
        reply = {"error": {"kind": kinds.get(m["op"], "not_running"), "message": str(error)}}
    if "id" in m: send(id=m["id"], **reply)
for line in sys.stdin: threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
for process in list(commands.values()): end(process, 0)  # the host is gone
