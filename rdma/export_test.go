package rdma

// SysfsGIDs reads a port's GID table from a device's folder in sysfs.
func SysfsGIDs(dir string, port int, link LinkLayer) ([]GIDEntry, error) {
	return sysfs(dir).gids(port, link)
}
