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
 *   tunnel.c   VXLAN, Geneve and GRE: frames inside of frames, and the filters of tunnel devices
 *   ipsec.c    IPsec states that the device accepts
 *   truth.c    debugfs
 */
#ifndef ESWITCH_H
#define ESWITCH_H

#include <linux/netdevice.h>
#include <net/flow_dissector.h>
#include <net/flow_offload.h>
#include <net/ip_tunnels.h>
#include <net/pkt_cls.h>

enum tunnel { TUNNEL_NONE, TUNNEL_VXLAN, TUNNEL_GENEVE, TUNNEL_GRE };

/*
 * What the parser of this NIC sees of a frame; a rule holds one as key and one as mask. Padding is always zero.
 * Of a frame in a tunnel, enc_* are the outer headers and all others the inner ones.
 */
struct headers {
	struct flow_dissector_key_control control;
	struct flow_dissector_key_basic basic;
	struct flow_dissector_key_eth_addrs eth;
	struct flow_dissector_key_vlan vlan;	/* tpid 0: no tag; every rule matches it */
	struct flow_dissector_key_ipv4_addrs ipv4;
	struct flow_dissector_key_ipv6_addrs ipv6;
	struct flow_dissector_key_ports ports;
	struct flow_dissector_key_tcp tcp;
	struct flow_dissector_key_ip ip;
	u16 tunnel;		/* enum tunnel; every rule matches it */
	u16 inner;		/* where the inner frame begins; no rule matches it */
	struct flow_dissector_key_control enc_control;
	struct flow_dissector_key_keyid enc_keyid;
	struct flow_dissector_key_ipv4_addrs enc_ipv4;
	struct flow_dissector_key_ports enc_ports;
	struct flow_dissector_key_ip enc_ip;
	struct flow_dissector_key_enc_opts enc_opts;
} __aligned(sizeof(long));

struct counter {
	atomic64_t packets;
	atomic64_t bytes;	/* with the Ethernet header, as NICs count */
};

/* Where TC has filters for this NIC: a representor, or a tunnel device. */
struct block {
	struct list_head list;		/* of tunnel devices */
	struct port *port;		/* NULL: of a tunnel device */
	const struct net_device *dev;
	enum tunnel tunnel;
	char name[IFNAMSIZ];
};

struct port {
	struct block block;
	struct net_device *representor;
	struct net_device *wire;
	struct counter in;	/* entered at the wire end */
	struct counter hit;	/* entered at the wire end, forwarded or dropped by a rule */
	struct counter miss;	/* entered at the wire end, given to the representor */
	struct counter out;	/* left at the wire end */
	struct counter too_long;	/* beyond the MTU of the wire end: lost without a word, as in any NIC */
	atomic_t sas;		/* IPsec states that this device was given */
};

struct step {
	enum flow_action_id id;
	struct port *to;	/* redirect, mirror; NULL: to a tunnel device */
	char device[IFNAMSIZ];	/* redirect, mirror */
	enum tunnel tunnel;	/* redirect, mirror to a tunnel device */
	struct ip_tunnel_info *info;	/* encapsulate: this rule's own; redirect, mirror to a tunnel: that of the step before */
	u8 base;		/* rewrite: enum flow_action_mangle_base */
	u8 offset;
	u16 tci;		/* push, modify a tag */
	__be16 tpid;
	u32 mask;		/* set bits are written; mask and value lie in memory as in the frame */
	u32 value;
};

struct rule {
	struct list_head list;
	struct rcu_head rcu;
	const struct block *block;
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
struct net *eswitch_net(void);
struct port *port_of(const struct net_device *dev);
struct port *port_of_representor(const struct net_device *dev);
void leave(struct sk_buff *skb, struct port *port);

/* match.c */
extern bool vlan;
void match_init(void);
void parse_frame(const struct sk_buff *skb, unsigned int at, struct headers *headers);
bool matches(const struct rule *rule, const struct headers *headers);
int parse_match(struct rule *rule, const struct flow_rule *flower, struct netlink_ext_ack *extack);

/* rules.c */
extern struct list_head rules;
extern struct mutex rules_lock;
struct rule *find_rule(const struct port *ingress, const struct headers *headers);
int block_cb(enum tc_setup_type type, void *type_data, void *cb_priv);

/* actions.c */
int parse_actions(struct rule *rule, const struct flow_action *actions, struct netlink_ext_ack *extack);
void execute(const struct rule *rule, struct sk_buff *skb, const struct headers *headers);

/* tunnel.c */
extern struct list_head block_cbs;
enum tunnel tunnel_of(const struct net_device *dev);
bool parse_inner(const struct sk_buff *skb, struct headers *headers);
int find_ingress(struct rule *rule, struct netlink_ext_ack *extack);
int check_encapsulation(const struct step *step, struct netlink_ext_ack *extack);
bool is_ready(const struct rule *rule);
struct port *encapsulate(struct sk_buff *skb, const struct step *step, const struct headers *headers);
int tunnels_init(void);
void tunnels_exit(void);

/* ipsec.c */
void ipsec_init(struct net_device *dev);

/* truth.c */
void truth_init(void);
void truth_exit(void);

#endif
