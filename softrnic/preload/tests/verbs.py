"""Sends a message between two queue pairs of soft0 with pyverbs, and compares it."""

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

TEXT = b"hello from pyverbs"
context = Context(name="soft0")
pd, cq = PD(context), CQ(context, 16)
init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=8, max_recv_wr=8))
one, other = (QP(pd, init, QPAttr(port_num=1)) for _ in range(2))
for qp, peer in ((one, other), (other, one)):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu = peer.qp_num, e.IBV_MTU_1024
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
    route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    qp.to_rts(attr)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
mr.write(TEXT, len(TEXT))
other.post_recv(RecvWR(sg=[SGE(mr.buf + 2048, 100, mr.lkey)], num_sge=1))
one.post_send(SendWR(opcode=e.IBV_WR_SEND, sg=[SGE(mr.buf, len(TEXT), mr.lkey)], num_sge=1))
completions = []
while len(completions) < 2:
    completions += cq.poll(1)[1]
assert all(completion.status == e.IBV_WC_SUCCESS for completion in completions), completions
assert mr.read(len(TEXT), 2048) == TEXT
print("all is well")
