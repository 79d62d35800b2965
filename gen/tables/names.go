package tables

import "strings"

// Initialisms gives the Go spelling of words in C names.
var Initialisms = parseWords(`ABI ADDRINFO=AddrInfo AES AH ASO AV AVL BF BSF BW CA CC CI CM CMA CPU CQ CQE CQE64 CQN CRC CRC32 CRC32C CSUM CT CVLAN
	DC DCI DCT DCTN DEK DEKS=DEKs DEVX=DevX DGID DID DIF DLID DM DMA DMABUF=DMABuf DMAC DMAH DNS DPP DR ECE EEC EFA EP EE EQ EQN ESN ESP 
	FCS FD FMR FDB FDS FS GCM GFA GID GRE GRH GUID GW HCA HW IB IBDEV=IBDev IBV IC ICM ICV ID INL IO IOVA IOVA2 IP IPOIB=IPoIB IPV4=IPv4 IPV6=IPv6 IV
	KEK KLM LB LID LKEY=LKey LMC LSO MAC MC MGID MKEY=MKey MLID MPLS MPRQ MPW MR MSI MSS MTU MW NDEV=NDev ODP OOO OS OUI
	PCI PD PDN PFAULT PKEY=PKey PKEYS=PKeys PP PS PSN QKEY=QKey QP QPN QPS QPT QPTS  RC RD RDD RDMA RKEY=RKey RLID RMAC RGID RNR ROCE=RoCE RQ RQN RSS RWQ RX
	SA SE SG SGE SGID SGES SGL  SIP SL SLID SM SPI SQ SQD SQN SWP SRD SRQ SRQN SRQT SW TCP TD TIR TIRN TISN TLP TM TMH TOS TPH TSO TTL TX
	UAR UC UD UDP UMEM UMR URI VA VAR VFIO VHCA VL VLAN VXLAN WC WQ WQE WQES=WQEs WQN WQS=WQs WR WRID WRS=WRs XRC XRCD XTS`)

// parseWords reads "CQ WQES=WQEs": a word and its spelling, itself if there
// is no "=".
func parseWords(list string) map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields(list) {
		word, spelling, ok := strings.Cut(w, "=")
		if !ok {
			spelling = word
		}
		m[strings.ToLower(word)] = spelling
	}
	return m
}

// Names gives the Go names that do not follow from the C ones.
var Names = map[string]string{
	"mult_to_ibv_rate":  "MultToRate",
	"mbps_to_ibv_rate":  "MbpsToRate",
	"rdma_getaddrinfo":  "GetAddrInfo",
	"rdma_freeaddrinfo": "FreeAddrInfo",
}

// AnonEnums names enumerations that have no tag, by their first value. An
// empty name makes plain constants of the values.
var AnonEnums = map[string]string{
	"IBV_LINK_LAYER_UNSPECIFIED":                "LinkLayer",
	"IBV_WC_IP_CSUM_OK_SHIFT":                   "",
	"IBV_WC_STANDARD_FLAGS":                     "",
	"IBV_CREATE_CQ_SUP_WC_FLAGS":                "",
	"IBV_SYSFS_NAME_MAX":                        "",
	"MLX5_RCV_DBR":                              "",
	"MLX5_OPCODE_NOP":                           "Opcode",
	"MLX5_INLINE_SCATTER_32":                    "InlineScatter",
	"MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR":        "CQESyndrome",
	"MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT":       "",
	"MLX5_CQE_L2_OK":                            "CQEHeaderOK",
	"MLX5_CQE_L3_HDR_TYPE_NONE":                 "CQEL3HeaderType",
	"MLX5_CQE_OWNER_MASK":                       "",
	"MLX5_CQ_DOORBELL":                          "",
	"MLX5_CQ_DB_REQ_NOT_SOL":                    "",
	"MLX5_TMC_SUCCESS":                          "",
	"MLX5_INVALID_LKEY":                         "",
	"MLX5_EXTENDED_UD_AV":                       "",
	"MLX5_WQE_CTRL_CQ_UPDATE":                   "WQECtrlFlags",
	"MLX5_SEND_WQE_BB":                          "",
	"MLX5_INLINE_SEG":                           "",
	"MLX5_ETH_WQE_L3_CSUM":                      "EthWQEFlags",
	"MLX5_WQE_UMR_CTRL_FLAG_INLINE":             "WQEUMRCtrlFlags",
	"MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN":           "WQEUMRCtrlMKeyMask",
	"MLX5_WQE_MKEY_CONTEXT_FREE":                "",
	"MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC": "WQEMKeyContextAccessFlags",
	"MLX5_MMAP_GET_REGULAR_PAGES_CMD":           "",
	"EFADV_DEVICE_ATTR_CAPS_RDMA_READ":          "DeviceCaps",
	"EFADV_SQ_DEPTH_ATTR_INLINE_WRITE":          "SQDepthFlags",
	"EFADV_QP_DRIVER_TYPE_SRD":                  "QPDriverType",
	"EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV":     "QPFlags",
	"EFADV_WR_EX_WITH_PROCESSING_HINTS":         "WRExFlags",
	"EFADV_WC_EX_WITH_SGID":                     "WCExFlags",
	"EFADV_CQ_INIT_FLAGS_EXT_MEM_DMABUF":        "CQInitFlags",
	"EFADV_MR_ATTR_VALIDITY_RECV_IC_ID":         "MRAttrValidity",
	"RDMA_MAX_RESP_RES":                         "",
	"RDMA_OPTION_ID":                            "OptionLevel",
	"RDMA_OPTION_ID_TOS":                        "OptionID",
	"RDMA_OPTION_IB_PATH":                       "OptionIB",
}

// Flags says for enumerations whether their values are bits to combine, where
// the general rule (written as shifts, or named _flags, _mask, _caps) errs.
var Flags = map[string]bool{
	"ibv_placement_type":         true,
	"ibv_rx_hash_fields":         true,
	"mlx5dv_sig_mask":            false,
	"rdma_cm_mc_join_flags":      false,
	"mlx5dv_obj_type":            true,
	"mlx5dv_tunnel_offloads":     true,
	"mlx5dv_sw_parsing_offloads": true,
	"mlx5dv_cqe_comp_res_format": true,
	"ibv_selectivity_level":      false,
	"$MLX5_INLINE_SCATTER_32":    false,
}
