package rdma

// Domain is a protection domain (struct ibv_pd).
type Domain struct{}
