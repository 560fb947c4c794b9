"""Kafka 4.2.0 as the judge: its jars, a process that answers questions, and a broker of one node.

The jars come from Maven Central by `pom.xml` into `build/judge/jars`, the classes of `java/` are
compiled beside them. Needs Java 17 (a JDK) and Maven; `missing()` says what is not there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "judge"
JVM = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
CLUSTER_ID = "AZrnqxevtsLEFr3dxah_-w"
START_SECONDS = 120


class JudgeError(AssertionError):
    """Kafka refused what it was asked about; the message is its stack trace."""


def missing() -> str | None:
    """One sentence on what must be installed, None if all is there."""
    found = [tool for tool in ("java", "javac", "mvn") if not shutil.which(tool)]
    if not found:
        return None
    return (
        f"The Kafka judge needs Java 17 and Maven, and found no {', '.join(found)}; "
        "install them (Debian: apt-get install openjdk-17-jdk-headless maven)."
    )


def class_path() -> str:
    """Fetches the jars and compiles the classes, once for each state of their sources."""
    jars, classes = BUILD / "jars", BUILD / "classes"
    sources = sorted((HERE / "java").glob("*.java"))
    wanted = _digest(HERE / "pom.xml")
    if not _built(jars, wanted):
        shutil.rmtree(jars, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", HERE / "pom.xml", "dependency:copy-dependencies"]
        _run([*command, f"-DoutputDirectory={jars}"])
        (jars / ".built").write_text(wanted)
    wanted = _digest(HERE / "pom.xml", *sources)
    if not _built(classes, wanted):
        shutil.rmtree(classes, ignore_errors=True)
        classes.mkdir(parents=True)
        _run(["javac", "-nowarn", "-Xlint:none", "-cp", f"{jars}/*", "-d", classes, *sources])
        (classes / ".built").write_text(wanted)
    return f"{classes}:{jars}/*"


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _built(folder: Path, wanted: str) -> bool:
    stamp = folder / ".built"
    return stamp.exists() and stamp.read_text() == wanted


def _run(command: list[Any]) -> None:
    done = subprocess.run(
        [str(word) for word in command], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


class Judge:
    """One JVM with Kafka's storage classes, tools and clients; `ask` puts one question."""

    def __init__(self, classes: str) -> None:
        self._process = subprocess.Popen(
            ["java", *JVM, QUIET, "-cp", classes, "Judge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, question: str, **arguments: Any) -> Any:
        """Kafka's answer; JudgeError with its stack trace where it threw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = json.dumps({"op": question, **arguments}, default=str)
        self._process.stdin.write(asked + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise JudgeError(f"the judge's JVM ended over {question}")
        answer = json.loads(line)
        if "error" in answer:
            raise JudgeError(f"{question}: {answer['error']}")
        return answer["ok"]

    def close(self) -> None:
        """Ends the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def free_port() -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """A Kafka broker and controller in one process on 127.0.0.1, with its log directory."""

    def __init__(self, classes: str, root: Path) -> None:
        self.root, self.log_directory = root, root / "log"
        self._classes, self._process = classes, None
        self._port, controller = free_port(), free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}"
        root.mkdir(parents=True, exist_ok=True)
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "log.dirs": self.log_directory,
            "offsets.topic.replication.factor": 1,
            "auto.create.topics.enable": "false",
            "log.retention.ms": -1,
            "num.network.threads": 1,
            "num.io.threads": 2,
            "log.cleaner.dedupe.buffer.size": 4000000,
        }
        self._properties = root / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c"]
        _run(["java", *JVM, QUIET, "-cp", classes, *tool, self._properties])

    def start(self) -> None:
        """Starts the process; questions to its clients wait for it by themselves."""
        command = ["java", *JVM, "-cp", self._classes, "kafka.Kafka", str(self._properties)]
        with (self.root / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, *, kill: bool = False) -> None:
        """Asks the broker to shut down cleanly, or kills it, and waits for its end."""
        if self._process is None:
            return
        self._process.kill() if kill else self._process.terminate()
        self._process.wait(START_SECONDS)
        self._process = None

    def log(self) -> str:
        """What the broker has said."""
        return (self.root / "server.log").read_text(errors="replace")
