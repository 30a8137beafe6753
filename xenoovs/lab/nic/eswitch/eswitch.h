/* SPDX-License-Identifier: GPL-2.0 */
/*
 * eswitch: a NIC in switchdev mode, in software, to test TC flower offload without one.
 *
 * Each port is a pair of network devices: the representor (p0), which belongs into a bridge, and the wire end (p0-w),
 * which stands for the cable or the function behind the port. A frame that enters at the wire end is looked up in the
 * rule table, as hardware does; if no rule matches, and only then, the representor receives it. What the representor
 * transmits leaves at its wire end. The debugfs files "rules" and "ports" show what really happened.
 *
 *   ports.c    devices, the path of a frame, the module
 *   match.c    headers of frames, flower matches to key and mask
 *   rules.c    the table: add, remove, look up, count
 *   actions.c  flower actions to steps, and their execution on a frame
 *   truth.c    debugfs
 */
#ifndef ESWITCH_H
#define ESWITCH_H

#include <linux/netdevice.h>
#include <net/flow_dissector.h>
#include <net/flow_offload.h>
#include <net/pkt_cls.h>

/* What the parser of this NIC sees of a frame; a rule holds one as key and one as mask. Padding is always zero. */
struct headers {
	struct flow_dissector_key_control control;
	struct flow_dissector_key_basic basic;
	struct flow_dissector_key_eth_addrs eth;
	struct flow_dissector_key_ipv4_addrs ipv4;
	struct flow_dissector_key_ipv6_addrs ipv6;
	struct flow_dissector_key_ports ports;
	struct flow_dissector_key_tcp tcp;
};

struct counter {
	atomic64_t packets;
	atomic64_t bytes;	/* with the Ethernet header, as NICs count */
};

struct port {
	struct net_device *representor;
	struct net_device *wire;
	struct counter in;	/* entered at the wire end */
	struct counter hit;	/* entered at the wire end, forwarded or dropped by a rule */
	struct counter miss;	/* entered at the wire end, given to the representor */
	struct counter out;	/* left at the wire end */
};

struct step {
	enum flow_action_id id;
	struct port *to;	/* redirect, mirror */
	u8 base;		/* rewrite: enum flow_action_mangle_base */
	u8 offset;
	u32 mask;		/* set bits are written; mask and value lie in memory as in the frame */
	u32 value;
};

struct rule {
	struct list_head list;
	struct rcu_head rcu;
	struct port *ingress;
	unsigned long handle;	/* the kernel's name of the filter, the same in add, stats and destroy */
	u32 prio;
	u32 cookie_len;
	u8 cookie[16];		/* what user space attached to an action; Open vSwitch: the ufid */
	struct headers key, mask;
	struct counter hit;
	atomic_t met;		/* packets that matched while there was a fault */
	atomic_t passed;	/* those of them that the NIC gave to the CPU */
	u64 reported_packets, reported_bytes;
	u64 last_used;
	unsigned int n_steps;
	struct step steps[];
};

static inline void count(struct counter *counter, unsigned int bytes)
{
	atomic64_inc(&counter->packets);
	atomic64_add(bytes, &counter->bytes);
}

/* ports.c */
extern struct port ports[];
extern unsigned int n_ports;
struct port *port_of_representor(const struct net_device *dev);
void leave(struct sk_buff *skb, struct port *port);

/* match.c */
void match_init(void);
void parse_frame(struct sk_buff *skb, struct headers *headers);
bool matches(const struct rule *rule, const struct headers *headers);
int parse_match(struct rule *rule, const struct flow_rule *flower, struct netlink_ext_ack *extack);

/* rules.c */
extern struct list_head rules;
extern struct mutex rules_lock;
struct rule *find_rule(const struct port *ingress, const struct headers *headers);
int port_block_cb(enum tc_setup_type type, void *type_data, void *cb_priv);

/* actions.c */
int parse_actions(struct rule *rule, const struct flow_action *actions, struct netlink_ext_ack *extack);
void execute(const struct rule *rule, struct sk_buff *skb, const struct headers *headers);

/* truth.c */
void truth_init(void);
void truth_exit(void);

#endif
