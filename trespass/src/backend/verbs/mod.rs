//! The `verbs` backend: RDMA devices, by sideway.
