"""Run Beam's worker pool at one address: ``python pool_at_address.py 127.0.0.2 50001``.

``worker_pool_main`` listens at all addresses. Here, several pools have the same port on one machine, as they
have on several machines.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(10))
    server.add_insecure_port(":".join(sys.argv[1:]))
    pool = BeamFnExternalWorkerPoolServicer(use_process=True)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    threading.Event().wait()
