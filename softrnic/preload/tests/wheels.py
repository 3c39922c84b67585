"""Transfers memory with a wheel of PyPI, and compares it. Usage: wheels.py NAME"""

import ctypes
import os
import sys
import types

LENGTH = 1 << 20


def mooncake():
    from mooncake.engine import TransferEngine

    engines = [TransferEngine(), TransferEngine()]
    for engine in engines:
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "soft0") == 0
    near, far = (ctypes.create_string_buffer(LENGTH) for _ in engines)
    for engine, memory in zip(engines, (near, far)):
        assert engine.register_memory(ctypes.addressof(memory), LENGTH) == 0
    peer = f"127.0.0.1:{engines[1].get_rpc_port()}"
    contents = bytes(at % 251 for at in range(LENGTH))
    near[:] = contents
    assert engines[0].transfer_sync_write(peer, ctypes.addressof(near), ctypes.addressof(far), LENGTH) == 0
    assert far.raw == contents
    near[:] = bytes(LENGTH)
    assert engines[0].transfer_sync_read(peer, ctypes.addressof(near), ctypes.addressof(far), LENGTH) == 0
    assert near.raw == contents


def nixl():
    # The wheel names types of torch, which is large, and does not use them here.
    torch = types.ModuleType("torch")
    torch.Tensor = torch.device = torch.dtype = type("unused", (), {})
    sys.modules["torch"] = torch
    from nixl._api import nixl_agent, nixl_agent_config

    config = nixl_agent_config(backends=["UCX"])
    agents = [nixl_agent("near", config), nixl_agent("far", config)]
    memories = [ctypes.create_string_buffer(LENGTH) for _ in agents]
    contents = bytes(at % 251 for at in range(LENGTH))
    memories[0][:] = contents
    places = [[(ctypes.addressof(memory), LENGTH, 0)] for memory in memories]
    for agent, memory in zip(agents, memories):
        agent.register_memory([(ctypes.addressof(memory), LENGTH, 0, "")], "DRAM")
    name = agents[0].add_remote_agent(agents[1].get_agent_metadata())
    for operation, filler in (("WRITE", 1), ("READ", 0)):
        descriptors = [agent.get_xfer_descs(place, "DRAM") for agent, place in zip([agents[0]] * 2, places)]
        handle = agents[0].initialize_xfer(operation, *descriptors, name)
        assert agents[0].transfer(handle) != "ERR"
        while (state := agents[0].check_xfer_state(handle)) != "DONE":
            assert state == "PROC", state
        assert memories[filler].raw == contents
        agents[0].release_xfer_handle(handle)
        memories[0][:] = bytes(LENGTH)


{"mooncake": mooncake, "nixl": nixl}[sys.argv[1]]()
print("all is well", flush=True)
# The library libnl in the wheel of NIXL crashes when a process exits, also without a device.
os._exit(0)
