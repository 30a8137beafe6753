// SPDX-License-Identifier: GPL-2.0
/* The ports of the switch as network devices, and the path of a frame between them. */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include "eswitch.h"

#define MAX_PORTS 8

static char *names[MAX_PORTS] = { "p0", "p1", "pf0hpf" };
static int n_names = 3;
module_param_array_named(ports, names, charp, &n_names, 0444);
MODULE_PARM_DESC(ports, "Names of the representors; the wire end of p0 is p0-w");

struct port ports[MAX_PORTS];
unsigned int n_ports;

struct net *eswitch_net(void)
{
	return dev_net(ports[0].representor);
}

struct port *port_of(const struct net_device *dev)
{
	return *(struct port **)netdev_priv(dev);
}

/* A frame leaves the switch: the wire end receives it. Consumes the frame. */
void leave(struct sk_buff *skb, struct port *port)
{
	if (!is_skb_forwardable(port->wire, skb)) {
		count(&port->too_long, skb->len);
		kfree_skb(skb);
		return;
	}
	count(&port->out, skb->len);
	DEV_STATS_INC(port->wire, rx_packets);
	DEV_STATS_ADD(port->wire, rx_bytes, skb->len);
	dev_forward_skb(port->wire, skb);
}

static netdev_tx_t representor_xmit(struct sk_buff *skb, struct net_device *dev)
{
	DEV_STATS_INC(dev, tx_packets);
	DEV_STATS_ADD(dev, tx_bytes, skb->len);
	leave(skb, port_of(dev));
	return NETDEV_TX_OK;
}

static unsigned int skip;
module_param(skip, uint, 0644);
MODULE_PARM_DESC(skip, "Fault: of each so many packets of a rule, one goes to the CPU, and the rule does not count it; 0: none");

static bool bypass;
module_param(bypass, bool, 0644);
MODULE_PARM_DESC(bypass, "Fault: the driver forwards the packets of rules with the CPU, and counts them as the NIC's");

static bool recount;
module_param(recount, bool, 0644);
MODULE_PARM_DESC(recount, "Fault: the CPU gets the packets of rules, and the driver counts them as the NIC's all the same");

/* Whether the NIC fails to use a rule for this packet. */
static bool skips(struct rule *rule)
{
	unsigned int every = READ_ONCE(skip);

	if (!every || atomic_inc_return(&rule->met) % every)
		return false;
	atomic_inc(&rule->passed);
	return true;
}

static void count_received(unsigned int bytes, struct port *port)
{
	count(&port->miss, bytes);
	DEV_STATS_INC(port->representor, rx_packets);
	DEV_STATS_ADD(port->representor, rx_bytes, bytes);
}

static void miss(struct sk_buff *skb, struct port *port)
{
	count_received(skb->len, port);
	dev_forward_skb(port->representor, skb);
}

/* A frame enters the switch. */
static netdev_tx_t wire_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct port *port = port_of(dev);
	struct headers headers = {};
	struct rule *rule;

	DEV_STATS_INC(dev, tx_packets);
	DEV_STATS_ADD(dev, tx_bytes, skb->len);
	count(&port->in, skb->len);
	/* Rules rewrite frames in place: neither the sender nor a packet socket may share the bytes. */
	skb = skb_unshare(skb, GFP_ATOMIC);
	if (!skb)
		return NETDEV_TX_OK;
	if (skb_linearize(skb)) {
		kfree_skb(skb);
		return NETDEV_TX_OK;
	}
	parse_frame(skb, 0, &headers);
	rcu_read_lock();
	rule = find_rule(port, &headers);
	if (!rule && parse_inner(skb, &headers))
		rule = find_rule(port, &headers);
	if (rule && READ_ONCE(recount)) {
		count(&rule->hit, skb->len);
		WRITE_ONCE(rule->last_used, get_jiffies_64());
		miss(skb, port);
	} else if (rule && !skips(rule) && is_ready(rule)) {
		if (READ_ONCE(bypass))
			count_received(skb->len, port);
		count(&port->hit, skb->len);
		count(&rule->hit, skb->len);
		WRITE_ONCE(rule->last_used, get_jiffies_64());
		execute(rule, skb, &headers);
	} else {
		miss(skb, port);
	}
	rcu_read_unlock();
	return NETDEV_TX_OK;
}

/* The packets that the CPU got: `ip stats show dev p0 group offload subgroup cpu_hit`. */
static bool has_offload_stats(const struct net_device *dev, int attribute)
{
	return attribute == IFLA_OFFLOAD_XSTATS_CPU_HIT;
}

static int get_offload_stats(int attribute, const struct net_device *dev, void *data)
{
	struct rtnl_link_stats64 *stats = data;
	const struct port *port = port_of(dev);

	if (attribute != IFLA_OFFLOAD_XSTATS_CPU_HIT)
		return -EINVAL;
	stats->rx_packets = atomic64_read(&port->miss.packets);
	stats->rx_bytes = atomic64_read(&port->miss.bytes);
	return 0;
}

static int representor_setup_tc(struct net_device *dev, enum tc_setup_type type, void *type_data)
{
	struct port *port = port_of(dev);

	if (type != TC_SETUP_BLOCK)
		return -EOPNOTSUPP;
	return flow_block_cb_setup_simple(type_data, &block_cbs, block_cb, &port->block, &port->block, true);
}

static int representor_parent_id(struct net_device *dev, struct netdev_phys_item_id *id)
{
	id->id_len = strlen(KBUILD_MODNAME);
	memcpy(id->id, KBUILD_MODNAME, id->id_len);
	return 0;
}

static const struct net_device_ops representor_ops = {
	.ndo_start_xmit = representor_xmit,
	.ndo_setup_tc = representor_setup_tc,
	.ndo_has_offload_stats = has_offload_stats,
	.ndo_get_offload_stats = get_offload_stats,
	.ndo_get_port_parent_id = representor_parent_id,
	.ndo_set_mac_address = eth_mac_addr,
};

static const struct net_device_ops wire_ops = {
	.ndo_start_xmit = wire_xmit,
	.ndo_set_mac_address = eth_mac_addr,
};

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, KBUILD_MODNAME, sizeof(info->driver));
}

/* What passed the cable of a port, by rules too: `ethtool -S p0`. Names of mlx5 (counters.rst of the kernel). */
static const char counter_names[][ETH_GSTRING_LEN] = {
	"rx_packets_phy", "rx_bytes_phy", "tx_packets_phy", "tx_bytes_phy",
};

static int get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(counter_names) : -EOPNOTSUPP;
}

static void get_strings(struct net_device *dev, u32 set, u8 *names)
{
	if (set == ETH_SS_STATS)
		memcpy(names, counter_names, sizeof(counter_names));
}

static void get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *values)
{
	const struct port *port = port_of(dev);

	values[0] = atomic64_read(&port->in.packets);
	values[1] = atomic64_read(&port->in.bytes);
	values[2] = atomic64_read(&port->out.packets);
	values[3] = atomic64_read(&port->out.bytes);
}

static const struct ethtool_ops representor_ethtool_ops = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_sset_count = get_sset_count,
	.get_strings = get_strings,
	.get_ethtool_stats = get_ethtool_stats,
};

static const struct ethtool_ops ethtool_ops = {
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
};

struct port *port_of_representor(const struct net_device *dev)
{
	return dev->netdev_ops == &representor_ops ? port_of(dev) : NULL;
}

static void setup(struct net_device *dev)
{
	ether_setup(dev);
	eth_hw_addr_random(dev);
	dev->ethtool_ops = &ethtool_ops;
	dev->needs_free_netdev = true;
	dev->priv_flags |= IFF_LIVE_ADDR_CHANGE;
	dev->max_mtu = ETH_MAX_MTU;
}

static struct net_device *create(struct port *port, const char *name, const struct net_device_ops *ops)
{
	struct net_device *dev = alloc_netdev(sizeof(struct port *), name, NET_NAME_USER, setup);

	if (!dev)
		return NULL;
	*(struct port **)netdev_priv(dev) = port;
	dev->netdev_ops = ops;
	if (ops == &representor_ops) {
		dev->ethtool_ops = &representor_ethtool_ops;
		dev->hw_features |= NETIF_F_HW_TC;
		dev->features |= NETIF_F_HW_TC;
		ipsec_init(dev);
	}
	if (register_netdev(dev)) {
		free_netdev(dev);
		return NULL;
	}
	return dev;
}

/* All at once: every device is closed before any is freed, so no frame in flight meets a device that is gone. */
static void destroy_ports(void)
{
	LIST_HEAD(devices);
	unsigned int i;

	rtnl_lock();
	for (i = 0; i < n_ports; i++) {
		if (ports[i].representor)
			unregister_netdevice_queue(ports[i].representor, &devices);
		if (ports[i].wire)
			unregister_netdevice_queue(ports[i].wire, &devices);
	}
	unregister_netdevice_many(&devices);
	rtnl_unlock();
}

static int __init eswitch_init(void)
{
	char wire[IFNAMSIZ];
	int err;

	match_init();
	for (n_ports = 0; n_ports < n_names; n_ports++) {
		struct port *port = &ports[n_ports];

		snprintf(wire, sizeof(wire), "%s-w", names[n_ports]);
		port->representor = create(port, names[n_ports], &representor_ops);
		port->wire = create(port, wire, &wire_ops);
		if (!port->representor || !port->wire) {
			n_ports++;
			destroy_ports();
			return -ENODEV;
		}
		port->block = (struct block) { .port = port, .dev = port->representor };
	}
	err = tunnels_init();
	if (err) {
		destroy_ports();
		return err;
	}
	truth_init();
	return 0;
}

static void __exit eswitch_exit(void)
{
	truth_exit();
	tunnels_exit();
	destroy_ports();
	rcu_barrier();
}

module_init(eswitch_init);
module_exit(eswitch_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A NIC in switchdev mode, in software, to test TC flower offload");
