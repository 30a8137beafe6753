// SPDX-License-Identifier: GPL-2.0
/* What the switch reads of a frame, and which flower matches it can compare that with. */
#include <linux/if_vlan.h>
#include <linux/module.h>
#include "eswitch.h"

static bool tcp_flags = true;
module_param(tcp_flags, bool, 0644);
MODULE_PARM_DESC(tcp_flags, "Whether rules may match the flags of TCP");

static struct flow_dissector dissector;

#define HEADER(id, member) { FLOW_DISSECTOR_KEY_##id, offsetof(struct headers, member) }
static const struct flow_dissector_key parsed_headers[] = {
	HEADER(CONTROL, control),
	HEADER(BASIC, basic),
	HEADER(ETH_ADDRS, eth),
	HEADER(IPV4_ADDRS, ipv4),
	HEADER(IPV6_ADDRS, ipv6),
	HEADER(PORTS, ports),
	HEADER(TCP, tcp),
};

void match_init(void)
{
	skb_flow_dissector_init(&dissector, parsed_headers, ARRAY_SIZE(parsed_headers));
}

/* The frame starts at its Ethernet header and is linear. Transport offsets count from there. */
void parse_frame(struct sk_buff *skb, struct headers *headers)
{
	memset(headers, 0, sizeof(*headers));
	__skb_flow_dissect(dev_net(skb->dev), skb, &dissector, headers, skb->data, eth_hdr(skb)->h_proto, ETH_HLEN,
			   skb_headlen(skb), FLOW_DISSECTOR_F_STOP_BEFORE_ENCAP);
	/* The dissector looks behind VLAN tags; this NIC does not, and no rule of it matches a tagged frame. */
	headers->basic.n_proto = eth_hdr(skb)->h_proto;
}

bool matches(const struct rule *rule, const struct headers *headers)
{
	const u8 *key = (const u8 *)&rule->key, *mask = (const u8 *)&rule->mask, *seen = (const u8 *)headers;
	unsigned int i;

	if (eth_type_vlan(headers->basic.n_proto))
		return false;
	for (i = 0; i < sizeof(*headers); i++)
		if ((seen[i] & mask[i]) != key[i])
			return false;
	return true;
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
	unsigned int i, known = BIT(FLOW_DISSECTOR_KEY_META);

	for (i = 0; i < ARRAY_SIZE(parsed_headers); i++)
		if (tcp_flags || parsed_headers[i].key_id != FLOW_DISSECTOR_KEY_TCP)
			known |= BIT(parsed_headers[i].key_id);
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
	/* IPv4 and IPv6 share their bytes in flower's key, and both are marked as used; addr_type says which is meant. */
	if (rule->key.control.addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS)
		COPY(rule, match, IPV4_ADDRS, ipv4);
	else if (rule->key.control.addr_type == FLOW_DISSECTOR_KEY_IPV6_ADDRS)
		COPY(rule, match, IPV6_ADDRS, ipv6);
	COPY(rule, match, PORTS, ports);
	COPY(rule, match, TCP, tcp);
	return 0;
}
