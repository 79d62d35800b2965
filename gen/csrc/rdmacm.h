
// The inline functions of rdma_cma.h. A function hand_x is x.

static struct sockaddr *hand_rdma_get_local_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.src_addr;
}

static struct sockaddr *hand_rdma_get_peer_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.dst_addr;
}
