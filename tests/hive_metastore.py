"""A Hive metastore that answers by Thrift, from the jars that PySpark has, with its database in a folder (Derby)."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.free_ports import free_port

_START = """
import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore.HMSHandler;
import org.apache.hadoop.hive.metastore.*;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

public class Start {
  public static void main(String[] words) throws Exception {
    HiveConf conf = new HiveConf(Start.class);
    conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + words[1] + "/metastore;create=true");
    conf.set("hive.metastore.warehouse.dir", words[1] + "/warehouse");
    conf.set("hive.metastore.schema.verification", "false");
    conf.set("datanucleus.schema.autoCreateAll", "true");
    IHMSHandler handler = RetryingHMSHandler.getProxy(conf, new HMSHandler("metastore", conf, false), false);
    InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0]));
    TThreadPoolServer.Args args = new TThreadPoolServer.Args(new TServerSocket(address));
    new TThreadPoolServer(args.processor(new TSetIpAddressProcessor<IHMSHandler>(handler))).serve();
  }
}
"""  # its own main listens on every address of the machine


@contextmanager
def metastore(folder: Path) -> Iterator[str]:
    """Its address, until the block ends."""
    folder.mkdir()
    (folder / "Start.java").write_text(_START)
    port, jars = free_port(), Path(pyspark.__file__).with_name("jars")
    command = ["java", "-Xmx512m", "-cp", f"{jars}/*", "Start.java", str(port), str(folder)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 180
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.5)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)
