// SPDX-License-Identifier: GPL-2.0
/* The rule table: one for the whole switch, searched by ingress port in the order of TC's priorities. */
#include <linux/delay.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include "eswitch.h"

LIST_HEAD(rules);		/* readers: RCU; writers: rules_lock */
DEFINE_MUTEX(rules_lock);
static unsigned int n_rules;

static unsigned int max_rules = 4096;
module_param(max_rules, uint, 0644);
MODULE_PARM_DESC(max_rules, "Entries of the rule table; may be changed at any time, never evicts");

static unsigned int max_prio = U16_MAX;
module_param(max_prio, uint, 0644);
MODULE_PARM_DESC(max_prio, "Highest preference of a rule, as NICs with few priorities have it");

static unsigned int buckets;
module_param(buckets, uint, 0644);
MODULE_PARM_DESC(buckets, "Buckets of a hash table with room for one rule each; 0: no hash table");

static bool prefix_masks;
module_param(prefix_masks, bool, 0644);
MODULE_PARM_DESC(prefix_masks, "Whether addresses may be matched by prefixes only");

static unsigned int install_ms;
module_param(install_ms, uint, 0644);
MODULE_PARM_DESC(install_ms, "Milliseconds that each new rule takes until it is in the table");

static unsigned long long head_start;
module_param(head_start, ullong, 0644);
MODULE_PARM_DESC(head_start, "Packets of 60 bytes that each new rule claims to have forwarded: counters beyond 32 bits at once");

/* Under rcu_read_lock(). */
struct rule *find_rule(const struct port *ingress, const struct headers *headers)
{
	struct rule *rule;

	list_for_each_entry_rcu(rule, &rules, list)
		if (rule->ingress == ingress && matches(rule, headers))
			return rule;
	return NULL;
}

static bool stale;
module_param(stale, bool, 0644);
MODULE_PARM_DESC(stale, "Fault: the driver does not refresh the counters of rules");

static void copy_cookie(struct rule *rule, const struct flow_action *actions)
{
	const struct flow_action_entry *action;
	int i;

	flow_action_for_each(i, action, actions) {
		if (!action->cookie)
			continue;
		rule->cookie_len = min_t(u32, action->cookie->cookie_len, sizeof(rule->cookie));
		memcpy(rule->cookie, action->cookie->cookie, rule->cookie_len);
		return;
	}
}

static struct rule *find_handle(const struct block *block, unsigned long handle)
{
	struct rule *rule;

	list_for_each_entry(rule, &rules, list)
		if (rule->block == block && rule->handle == handle)
			return rule;
	return NULL;
}

static void free_rule(struct rule *rule)
{
	unsigned int i;

	for (i = 0; i < rule->n_steps; i++)
		if (rule->steps[i].id == FLOW_ACTION_TUNNEL_ENCAP)
			kfree(rule->steps[i].info);
	kfree(rule);
}

static void free_rule_rcu(struct rcu_head *rcu)
{
	free_rule(container_of(rcu, struct rule, rcu));
}

static int remove_rule(const struct block *block, unsigned long handle)
{
	struct rule *rule = find_handle(block, handle);

	if (!rule)
		return -ENOENT;
	list_del_rcu(&rule->list);
	call_rcu(&rule->rcu, free_rule_rcu);
	n_rules--;
	return 0;
}

static void insert_rule(struct rule *rule)
{
	struct rule *other;

	/* Ends at the head itself when no rule has a higher number: list_add_tail_rcu() then appends. */
	list_for_each_entry(other, &rules, list)
		if (other->prio > rule->prio)
			break;
	list_add_tail_rcu(&rule->list, &other->list);
	n_rules++;
}

static u32 bucket_of(const struct rule *rule, unsigned int n)
{
	return jhash(&rule->key, sizeof(rule->key), jhash(&rule->mask, sizeof(rule->mask), 0)) % n;
}

static bool collides(const struct rule *rule, unsigned int n)
{
	struct rule *other;

	list_for_each_entry(other, &rules, list)
		if (bucket_of(other, n) == bucket_of(rule, n))
			return true;
	return false;
}

static bool is_prefix(__be32 mask)
{
	u32 rest = ~ntohl(mask);

	return !(rest & (rest + 1));
}

static int check_limits(const struct rule *rule, struct netlink_ext_ack *extack)
{
	unsigned int n = READ_ONCE(buckets);

	if (rule->prio > READ_ONCE(max_prio)) {
		NL_SET_ERR_MSG_MOD(extack, "requested priority is not supported");
		return -EOPNOTSUPP;
	}
	if (READ_ONCE(prefix_masks) && !(is_prefix(rule->mask.ipv4.src) && is_prefix(rule->mask.ipv4.dst))) {
		NL_SET_ERR_MSG_MOD(extack, "only prefix masks are supported");
		return -EOPNOTSUPP;
	}
	if (n && collides(rule, n)) {
		NL_SET_ERR_MSG_MOD(extack, "hash collision");
		return -ENOSPC;
	}
	return 0;
}

static int check_and_insert(struct rule *rule, struct flow_cls_offload *flower, struct netlink_ext_ack *extack)
{
	int err;

	if (flower->common.chain_index) {
		NL_SET_ERR_MSG_MOD(extack, "unsupported chain");
		return -EOPNOTSUPP;
	}
	err = parse_match(rule, flower->rule, extack);
	if (!err)
		err = find_ingress(rule, extack);
	if (!err && !tc_can_offload_extack(rule->ingress->representor, extack))
		err = -EOPNOTSUPP;
	if (!err)
		err = parse_actions(rule, &flower->rule->action, extack);
	if (!err)
		err = check_limits(rule, extack);
	if (err)
		return err;
	if (n_rules >= READ_ONCE(max_rules)) {
		NL_SET_ERR_MSG_MOD(extack, "rule table is full");
		return -ENOSPC;
	}
	insert_rule(rule);
	return 0;
}

static int add_rule(const struct block *block, struct flow_cls_offload *flower)
{
	/* TC passes no extack when the rule may live in software; the kernel log has the reason all the same. */
	struct netlink_ext_ack own = {}, *extack = flower->common.extack ?: &own;
	struct rule *rule;
	int err;

	rule = kzalloc(struct_size(rule, steps, flower->rule->action.num_entries), GFP_KERNEL);
	if (!rule)
		return -ENOMEM;
	rule->block = block;
	rule->handle = flower->cookie;
	rule->prio = flower->common.prio;
	copy_cookie(rule, &flower->rule->action);
	atomic64_set(&rule->hit.packets, READ_ONCE(head_start));
	atomic64_set(&rule->hit.bytes, READ_ONCE(head_start) * ETH_ZLEN);
	remove_rule(block, flower->cookie);
	err = check_and_insert(rule, flower, extack);
	if (err) {
		netdev_info(block->dev, "refused %*phN: %s\n", (int)rule->cookie_len, rule->cookie,
			    extack->_msg ?: "no reason");
		free_rule(rule);
	}
	return err;
}

static int tell_counters(const struct block *block, struct flow_cls_offload *flower)
{
	struct rule *rule = find_handle(block, flower->cookie);
	u64 packets, bytes;

	if (!rule)
		return -ENOENT;
	packets = READ_ONCE(stale) ? rule->reported_packets : atomic64_read(&rule->hit.packets);
	bytes = READ_ONCE(stale) ? rule->reported_bytes : atomic64_read(&rule->hit.bytes);
	/* TC adds up, so it gets what came since the last call. */
	flow_stats_update(&flower->stats, bytes - rule->reported_bytes, packets - rule->reported_packets, 0,
			  READ_ONCE(rule->last_used), FLOW_ACTION_HW_STATS_DELAYED);
	rule->reported_packets = packets;
	rule->reported_bytes = bytes;
	return 0;
}

int block_cb(enum tc_setup_type type, void *type_data, void *cb_priv)
{
	struct flow_cls_offload *flower = type_data;
	int err = -EOPNOTSUPP;

	if (type != TC_SETUP_CLSFLOWER)
		return err;
	if (flower->command == FLOW_CLS_REPLACE && READ_ONCE(install_ms))
		msleep(READ_ONCE(install_ms));
	mutex_lock(&rules_lock);
	if (flower->command == FLOW_CLS_REPLACE)
		err = add_rule(cb_priv, flower);
	else if (flower->command == FLOW_CLS_DESTROY)
		err = remove_rule(cb_priv, flower->cookie);
	else if (flower->command == FLOW_CLS_STATS)
		err = tell_counters(cb_priv, flower);
	mutex_unlock(&rules_lock);
	return err;
}
