// SPDX-License-Identifier: GPL-2.0
/* What the switch reads of a frame, and which flower matches it can compare that with. */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/module.h>
#include "eswitch.h"

static bool ip_key = true;
module_param(ip_key, bool, 0644);
MODULE_PARM_DESC(ip_key, "Whether rules may match the TOS and the TTL of IP");

static bool tcp_flags = true;
module_param(tcp_flags, bool, 0644);
MODULE_PARM_DESC(tcp_flags, "Whether rules may match the flags of TCP");

bool vlan = true;
module_param(vlan, bool, 0644);
MODULE_PARM_DESC(vlan, "Whether rules may match a VLAN tag, and push, pop or change it");

static unsigned int coarse;
module_param(coarse, uint, 0644);
MODULE_PARM_DESC(coarse, "Fault: so many of the lowest bits of IPv4 sources are not compared, whatever the mask of the rule");

static struct flow_dissector dissector;

#define HEADER(id, member) { FLOW_DISSECTOR_KEY_##id, offsetof(struct headers, member) }
static const struct flow_dissector_key dissected[] = {
	HEADER(CONTROL, control),
	HEADER(BASIC, basic),
	HEADER(VLAN, vlan),
	HEADER(IPV4_ADDRS, ipv4),
	HEADER(IPV6_ADDRS, ipv6),
	HEADER(PORTS, ports),
	HEADER(TCP, tcp),
	HEADER(IP, ip),
};

#define KEYS_OF_PORTS (BIT(FLOW_DISSECTOR_KEY_META) | BIT(FLOW_DISSECTOR_KEY_CONTROL) |		\
	BIT(FLOW_DISSECTOR_KEY_BASIC) | BIT(FLOW_DISSECTOR_KEY_ETH_ADDRS) | BIT(FLOW_DISSECTOR_KEY_VLAN) |	\
	BIT(FLOW_DISSECTOR_KEY_IPV4_ADDRS) | BIT(FLOW_DISSECTOR_KEY_IPV6_ADDRS) |			\
	BIT(FLOW_DISSECTOR_KEY_PORTS) | BIT(FLOW_DISSECTOR_KEY_TCP) | BIT(FLOW_DISSECTOR_KEY_IP))

#define KEYS_OF_TUNNELS (BIT(FLOW_DISSECTOR_KEY_ENC_CONTROL) | BIT(FLOW_DISSECTOR_KEY_ENC_KEYID) |	\
	BIT(FLOW_DISSECTOR_KEY_ENC_IPV4_ADDRS) | BIT(FLOW_DISSECTOR_KEY_ENC_IPV6_ADDRS) |		\
	BIT(FLOW_DISSECTOR_KEY_ENC_PORTS) | BIT(FLOW_DISSECTOR_KEY_ENC_IP) |				\
	BIT(FLOW_DISSECTOR_KEY_ENC_OPTS))

void match_init(void)
{
	skb_flow_dissector_init(&dissector, dissected, ARRAY_SIZE(dissected));
}

/*
 * Read the frame that begins with an Ethernet header at offset `at`; the buffer is linear. Transport offsets count from
 * there, without a tag. `headers` must be zero.
 */
void parse_frame(const struct sk_buff *skb, unsigned int at, struct headers *headers)
{
	const struct ethhdr *eth = (const struct ethhdr *)(skb->data + at);

	__skb_flow_dissect(dev_net(skb->dev), NULL, &dissector, headers, (void *)eth, eth->h_proto, ETH_HLEN,
			   skb_headlen(skb) - at, FLOW_DISSECTOR_F_STOP_BEFORE_ENCAP);
	ether_addr_copy(headers->eth.dst, eth->h_dest);
	ether_addr_copy(headers->eth.src, eth->h_source);
	if (headers->vlan.vlan_tpid)
		headers->control.thoff -= VLAN_HLEN;
}

static bool compares_equal(const struct rule *rule, const struct headers *headers)
{
	const long *key = (const long *)&rule->key, *mask = (const long *)&rule->mask, *seen = (const long *)headers;
	unsigned int i;

	for (i = 0; i < sizeof(*headers) / sizeof(long); i++)
		if ((seen[i] & mask[i]) != key[i])
			return false;
	return true;
}

/* As the NIC looks it up: `headers` without the bits of its source that it does not compare. */
static bool matches_coarsely(const struct rule *rule, const struct headers *headers, __be32 compared)
{
	struct headers seen = *headers;

	seen.ipv4.src = (seen.ipv4.src & compared) | (rule->key.ipv4.src & ~compared);
	return compares_equal(rule, &seen);
}

bool matches(const struct rule *rule, const struct headers *headers)
{
	unsigned int ignored = READ_ONCE(coarse);

	/* The dissector looks behind two tags; this NIC does not, and no rule of it matches such a frame. */
	if (eth_type_vlan(headers->vlan.vlan_eth_type))
		return false;
	if (ignored && rule->mask.ipv4.src && ignored < 32)
		return matches_coarsely(rule, headers, htonl(~0U << ignored));
	return compares_equal(rule, headers);
}

static void copy_masked(void *key, void *mask, const struct flow_match *match, enum flow_dissector_key_id id,
			size_t size)
{
	const u8 *from = skb_flow_dissector_target(match->dissector, id, match->key);
	unsigned int i;

	memcpy(mask, skb_flow_dissector_target(match->dissector, id, match->mask), size);
	for (i = 0; i < size; i++)
		((u8 *)key)[i] = from[i] & ((u8 *)mask)[i];
}

#define COPY(rule, match, id, member) do {								\
	if (dissector_uses_key((match)->dissector, FLOW_DISSECTOR_KEY_##id))				\
		copy_masked(&(rule)->key.member, &(rule)->mask.member, match, FLOW_DISSECTOR_KEY_##id,	\
			    sizeof((rule)->key.member));						\
} while (0)

int parse_match(struct rule *rule, const struct flow_rule *flower, struct netlink_ext_ack *extack)
{
	const struct flow_match *match = &flower->match;
	unsigned int known = KEYS_OF_PORTS;

	if (!READ_ONCE(tcp_flags))
		known &= ~BIT(FLOW_DISSECTOR_KEY_TCP);
	if (!READ_ONCE(vlan))
		known &= ~BIT(FLOW_DISSECTOR_KEY_VLAN);
	if (!READ_ONCE(ip_key))
		known &= ~BIT(FLOW_DISSECTOR_KEY_IP);
	if (rule->block->tunnel != TUNNEL_NONE)
		known |= KEYS_OF_TUNNELS;
	if (match->dissector->used_keys & ~known) {
		NL_SET_ERR_MSG_MOD(extack, "unsupported match key");
		return -EOPNOTSUPP;
	}
	/* Flower sets META also when it matches nothing of it. */
	if (flow_rule_match_key(flower, FLOW_DISSECTOR_KEY_META)) {
		struct flow_match_meta meta;

		flow_rule_match_meta(flower, &meta);
		if (meta.mask->ingress_ifindex || meta.mask->ingress_iftype) {
			NL_SET_ERR_MSG_MOD(extack, "unsupported match key: ingress device");
			return -EOPNOTSUPP;
		}
	}
	COPY(rule, match, CONTROL, control);
	COPY(rule, match, BASIC, basic);
	COPY(rule, match, ETH_ADDRS, eth);
	COPY(rule, match, VLAN, vlan);
	rule->mask.vlan.vlan_tpid = (__force __be16)U16_MAX;
	/* IPv4 and IPv6 share their bytes in flower's key, and both are marked as used; addr_type says which is meant. */
	if (rule->key.control.addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS)
		COPY(rule, match, IPV4_ADDRS, ipv4);
	else if (rule->key.control.addr_type == FLOW_DISSECTOR_KEY_IPV6_ADDRS)
		COPY(rule, match, IPV6_ADDRS, ipv6);
	COPY(rule, match, PORTS, ports);
	COPY(rule, match, TCP, tcp);
	COPY(rule, match, IP, ip);
	COPY(rule, match, ENC_CONTROL, enc_control);
	COPY(rule, match, ENC_KEYID, enc_keyid);
	if (rule->key.enc_control.addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS)
		COPY(rule, match, ENC_IPV4_ADDRS, enc_ipv4);
	COPY(rule, match, ENC_PORTS, enc_ports);
	COPY(rule, match, ENC_IP, enc_ip);
	COPY(rule, match, ENC_OPTS, enc_opts);
	rule->key.tunnel = rule->block->tunnel;
	rule->mask.tunnel = U16_MAX;
	return 0;
}
