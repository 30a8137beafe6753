// SPDX-License-Identifier: GPL-2.0
/*
 * IPsec states (SAs) that a device accepts: `ip xfrm state add ... offload dev p1 dir out`. The driver counts them and
 * leaves each packet to the CPU: it has no engine for them, and says so for each packet.
 */
#include <net/xfrm.h>
#include "eswitch.h"

static int add_state(struct xfrm_state *state)
{
	atomic_inc(&port_of(state->xso.dev)->sas);
	return 0;
}

static void delete_state(struct xfrm_state *state)
{
	atomic_dec(&port_of(state->xso.dev)->sas);
}

static bool encrypts(struct sk_buff *skb, struct xfrm_state *state)
{
	return false;
}

static const struct xfrmdev_ops ops = {
	.xdo_dev_state_add = add_state,
	.xdo_dev_state_delete = delete_state,
	.xdo_dev_offload_ok = encrypts,
};

void ipsec_init(struct net_device *dev)
{
	dev->xfrmdev_ops = &ops;
	dev->features |= NETIF_F_HW_ESP;
	dev->hw_enc_features |= NETIF_F_HW_ESP;
}
