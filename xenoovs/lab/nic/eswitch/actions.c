// SPDX-License-Identifier: GPL-2.0
/* What a rule does with a frame: rewrite header words, update checksums, mirror, then redirect or drop. */
#include <net/ip.h>
#include "eswitch.h"

static int parse_step(struct step *step, const struct flow_action_entry *action, struct netlink_ext_ack *extack)
{
	step->id = action->id;
	switch (action->id) {
	case FLOW_ACTION_DROP:
	case FLOW_ACTION_CSUM:
		return 0;
	case FLOW_ACTION_REDIRECT:
	case FLOW_ACTION_MIRRED:
		step->to = port_of_representor(action->dev);
		if (step->to)
			return 0;
		NL_SET_ERR_MSG_MOD(extack, "egress device is not on this eswitch");
		return -EOPNOTSUPP;
	case FLOW_ACTION_MANGLE:
		step->base = action->mangle.htype;
		step->offset = action->mangle.offset;
		step->mask = ~action->mangle.mask;	/* TC: the bits to keep */
		step->value = action->mangle.val & step->mask;
		if (step->base != FLOW_ACT_MANGLE_UNSPEC && action->mangle.offset <= 40)
			return 0;
		NL_SET_ERR_MSG_MOD(extack, "unsupported header rewrite");
		return -EOPNOTSUPP;
	default:
		NL_SET_ERR_MSG_MOD(extack, "unsupported action");
		return -EOPNOTSUPP;
	}
}

int parse_actions(struct rule *rule, const struct flow_action *actions, struct netlink_ext_ack *extack)
{
	const struct flow_action_entry *action;
	enum flow_action_id last = FLOW_ACTION_ACCEPT;
	int i, err;

	if (!flow_action_hw_stats_check(actions, extack, FLOW_ACTION_HW_STATS_DELAYED_BIT))
		return -EOPNOTSUPP;
	flow_action_for_each(i, action, actions) {
		err = parse_step(&rule->steps[rule->n_steps++], action, extack);
		if (err)
			return err;
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

/* Consumes the frame. */
void execute(const struct rule *rule, struct sk_buff *skb, const struct headers *headers)
{
	const struct step *step;
	struct sk_buff *copy;

	for (step = rule->steps; step < rule->steps + rule->n_steps; step++) {
		switch (step->id) {
		case FLOW_ACTION_REDIRECT:
			leave(skb, step->to);
			return;
		case FLOW_ACTION_MIRRED:
			/* Not a clone: later steps may rewrite this frame. */
			copy = skb_copy(skb, GFP_ATOMIC);
			if (copy)
				leave(copy, step->to);
			break;
		case FLOW_ACTION_MANGLE:
			rewrite(skb, step, headers);
			break;
		case FLOW_ACTION_CSUM:
			update_checksums(skb);
			break;
		default:
			kfree_skb(skb);
			return;
		}
	}
}
