"""Runs the client of docs/python_client.md, as written there, against a real `quire serve`.

usage: client_test.py QUIRE MODEL SOURCE_ROOT   (with the python3 that has grpc)
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

QUIRE, MODEL, ROOT = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])


def main():
    page = (ROOT / "docs/python_client.md").read_text(encoding="utf-8")
    client = re.search(r"```python\n(.*?)```", page, re.S).group(1)
    assert len(client.splitlines()) <= 20, "the page promises a short client"
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        subprocess.run(["protoc", "-I", ROOT / "proto", f"--python_out={work}", f"--grpc_python_out={work}",
                        "--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin",
                        *sorted((ROOT / "proto/quire/v1").glob("*.proto"))], check=True)
        (work / "client.py").write_text(client, encoding="utf-8")
        ready = work / "ready.json"
        server = subprocess.Popen([QUIRE, "serve", "--model", MODEL, "--offline", "--port", "0", "--http-port", "0",
                                   "--num-blocks", "64", "--ready-file", ready])
        try:
            while not ready.is_file():
                assert server.poll() is None, "the server ended while starting"
                time.sleep(0.02)
            port = json.loads(ready.read_text())["grpc_port"]
            answer = subprocess.run([sys.executable, work / "client.py", f"127.0.0.1:{port}"], check=True, timeout=60,
                                    env={**os.environ, "PYTHONPATH": str(work)}, capture_output=True, text=True)
        finally:
            server.send_signal(signal.SIGTERM)
            status = server.wait(timeout=30)
    print(answer.stdout)
    assert "Paris" in answer.stdout, answer.stdout
    assert answer.stdout.rstrip().endswith("8 tokens"), answer.stdout
    assert status == 0, f"quire serve exited with {status}"


main()
