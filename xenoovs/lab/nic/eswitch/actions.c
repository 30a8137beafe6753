// SPDX-License-Identifier: GPL-2.0
/* What a rule does with a frame: rewrite header words and the tag, update checksums, mirror, then redirect or drop. */
#include <linux/if_vlan.h>
#include <net/ip.h>
#include "eswitch.h"

static int parse_output(struct step *step, const struct net_device *dev, struct ip_tunnel_info *info,
			struct netlink_ext_ack *extack)
{
	strscpy(step->device, dev->name, sizeof(step->device));
	step->to = port_of_representor(dev);
	if (step->to)
		return 0;
	step->tunnel = tunnel_of(dev);
	step->info = info;
	if (step->tunnel != TUNNEL_NONE && info)
		return check_encapsulation(step, extack);
	NL_SET_ERR_MSG_MOD(extack, "egress device is not on this eswitch");
	return -EOPNOTSUPP;
}

/* info: of the last step that encapsulates. */
static int parse_step(struct step *step, const struct flow_action_entry *action, struct ip_tunnel_info *info,
		      struct netlink_ext_ack *extack)
{
	step->id = action->id;
	switch (action->id) {
	case FLOW_ACTION_DROP:
	case FLOW_ACTION_CSUM:
		return 0;
	case FLOW_ACTION_REDIRECT:
	case FLOW_ACTION_MIRRED:
		return parse_output(step, action->dev, info, extack);
	case FLOW_ACTION_TUNNEL_ENCAP:
		/* The kernel's own is gone when this call returns. */
		step->info = kmemdup(action->tunnel, sizeof(*action->tunnel) + action->tunnel->options_len, GFP_KERNEL);
		return step->info ? 0 : -ENOMEM;
	case FLOW_ACTION_TUNNEL_DECAP:
		return 0;
	case FLOW_ACTION_MANGLE:
		step->base = action->mangle.htype;
		step->offset = action->mangle.offset;
		step->mask = ~action->mangle.mask;	/* TC: the bits to keep */
		step->value = action->mangle.val & step->mask;
		if (step->base != FLOW_ACT_MANGLE_UNSPEC && action->mangle.offset <= 40)
			return 0;
		NL_SET_ERR_MSG_MOD(extack, "unsupported header rewrite");
		return -EOPNOTSUPP;
	case FLOW_ACTION_VLAN_PUSH:
		step->tci = action->vlan.vid | action->vlan.prio << VLAN_PRIO_SHIFT;
		step->tpid = action->vlan.proto;
		fallthrough;
	case FLOW_ACTION_VLAN_POP:
		if (READ_ONCE(vlan))
			return 0;
		fallthrough;
	default:
		NL_SET_ERR_MSG_MOD(extack, "unsupported action");
		return -EOPNOTSUPP;
	}
}

int parse_actions(struct rule *rule, const struct flow_action *actions, struct netlink_ext_ack *extack)
{
	const struct flow_action_entry *action;
	bool in_tunnel = rule->block->tunnel != TUNNEL_NONE, is_tagged = rule->key.vlan.vlan_tpid;
	enum flow_action_id last = FLOW_ACTION_ACCEPT;
	struct ip_tunnel_info *info = NULL;
	struct step *step;
	int i, err;

	if (!flow_action_hw_stats_check(actions, extack, FLOW_ACTION_HW_STATS_DELAYED_BIT))
		return -EOPNOTSUPP;
	flow_action_for_each(i, action, actions) {
		if (action->id != FLOW_ACTION_DROP && (action->id == FLOW_ACTION_TUNNEL_DECAP) != (in_tunnel && i == 0)) {
			NL_SET_ERR_MSG_MOD(extack, "unsupported action: packets of a tunnel are decapsulated first, others never");
			return -EOPNOTSUPP;
		}
		if (action->id == FLOW_ACTION_VLAN_PUSH && is_tagged) {
			NL_SET_ERR_MSG_MOD(extack, "unsupported action: a second VLAN tag");
			return -EOPNOTSUPP;
		}
		if (action->id == FLOW_ACTION_VLAN_PUSH || action->id == FLOW_ACTION_VLAN_POP)
			is_tagged = action->id == FLOW_ACTION_VLAN_PUSH;
		step = &rule->steps[rule->n_steps++];
		err = parse_step(step, action, info, extack);
		if (err)
			return err;
		if (action->id == FLOW_ACTION_TUNNEL_ENCAP)
			info = step->info;
		last = action->id;
	}
	if (last != FLOW_ACTION_REDIRECT && last != FLOW_ACTION_DROP) {
		NL_SET_ERR_MSG_MOD(extack, "unsupported action: the rule ends in neither redirect nor drop");
		return -EOPNOTSUPP;
	}
	return 0;
}

static void rewrite(struct sk_buff *skb, const struct step *step, const struct headers *headers)
{
	unsigned int at = step->offset;
	u32 word;

	if (step->base == FLOW_ACT_MANGLE_HDR_TYPE_IP4 || step->base == FLOW_ACT_MANGLE_HDR_TYPE_IP6)
		at += ETH_HLEN;
	else if (step->base != FLOW_ACT_MANGLE_HDR_TYPE_ETH)
		at += headers->control.thoff;
	if (at + sizeof(word) > skb->len)
		return;
	memcpy(&word, skb->data + at, sizeof(word));
	word = (word & ~step->mask) | step->value;
	memcpy(skb->data + at, &word, sizeof(word));
}

/* The kernel knows how to find and compute them: have it prepare the frame as for a device that does it. */
static void update_checksums(struct sk_buff *skb)
{
	skb_pull(skb, ETH_HLEN);
	skb_reset_network_header(skb);
	skb->protocol = eth_hdr(skb)->h_proto;
	if (skb->protocol == htons(ETH_P_IP))
		ip_send_check(ip_hdr(skb));
	if (skb_checksum_setup(skb, true) == 0 && skb->ip_summed == CHECKSUM_PARTIAL)
		skb_checksum_help(skb);
	skb_push(skb, ETH_HLEN);
}

/* The tag of a frame stands beside its bytes until it leaves, so that offsets of rewrites hold. */
static void take_tag(struct sk_buff *skb)
{
	const struct vlan_ethhdr *tagged = (const struct vlan_ethhdr *)skb->data;

	if (!eth_type_vlan(tagged->h_vlan_proto))
		return;
	__vlan_hwaccel_put_tag(skb, tagged->h_vlan_proto, ntohs(tagged->h_vlan_TCI));
	memmove(skb->data + VLAN_HLEN, skb->data, 2 * ETH_ALEN);
	skb_pull(skb, VLAN_HLEN);
	skb_reset_mac_header(skb);
}

/* Consumes the frame. */
static void output(struct sk_buff *skb, const struct step *step, const struct headers *headers)
{
	struct port *port;

	if (skb_vlan_tag_present(skb))
		skb = __vlan_hwaccel_push_inside(skb);
	if (!skb)
		return;
	port = step->to ?: encapsulate(skb, step, headers);
	if (port)
		leave(skb, port);
	else
		kfree_skb(skb);
}

/* Consumes the frame. */
void execute(const struct rule *rule, struct sk_buff *skb, const struct headers *headers)
{
	const struct step *step;
	struct sk_buff *copy;

	take_tag(skb);
	for (step = rule->steps; step < rule->steps + rule->n_steps; step++) {
		switch (step->id) {
		case FLOW_ACTION_REDIRECT:
			output(skb, step, headers);
			return;
		case FLOW_ACTION_MIRRED:
			/* Not a clone: later steps may rewrite this frame. */
			copy = skb_copy(skb, GFP_ATOMIC);
			if (copy)
				output(copy, step, headers);
			break;
		case FLOW_ACTION_TUNNEL_ENCAP:
			break;
		case FLOW_ACTION_TUNNEL_DECAP:
			skb_pull(skb, headers->inner);
			skb_reset_mac_header(skb);
			take_tag(skb);
			break;
		case FLOW_ACTION_MANGLE:
			rewrite(skb, step, headers);
			break;
		case FLOW_ACTION_CSUM:
			update_checksums(skb);
			break;
		case FLOW_ACTION_VLAN_POP:
			__vlan_hwaccel_clear_tag(skb);
			break;
		case FLOW_ACTION_VLAN_PUSH:
			__vlan_hwaccel_put_tag(skb, step->tpid, step->tci);
			break;
		default:
			kfree_skb(skb);
			return;
		}
	}
}
