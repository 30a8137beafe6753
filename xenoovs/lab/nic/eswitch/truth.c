// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/eswitch/rules, one line a rule, in the order of the lookup:
 *
 *   port=p0 pref=2 cookie=HEX packets=3 bytes=294 passed=0 match eth_type=0800/ffff ip_src=00000001/00000003 actions ...
 *
 * A rule of a tunnel device has via=DEVICE behind the port by which its packets come.
 *
 * passed: packets that matched and that the NIC gave to the CPU all the same (the fault "skip").
 *
 * Header fields are hexadecimal bytes as they lie in the frame, value/mask, and left out when the mask is zero. Actions,
 * one word each: set:eth+0=02005e10/ffffffff (base, offset, value/mask), csum, mirror:p1, redirect:p1, drop, decap,
 * pop_vlan, push_vlan:vid=300,pcp=0,
 * encap:dst=192.0.2.2,src=192.0.2.1,key=5001,port=6081,tos=0,ttl=64,options=HEX before redirect:genev_sys_6081.
 *
 * /sys/kernel/debug/eswitch/ports, one line a port: port=p0 hit_packets=.. hit_bytes=.. miss_.. out_.. too_long_.. sas=N
 */
#include <linux/debugfs.h>
#include <linux/if_vlan.h>
#include <linux/seq_file.h>
#include "eswitch.h"

#define FIELD(name, member) { name, offsetof(struct headers, member), sizeof_field(struct headers, member) }
static const struct {
	const char *name;
	size_t offset;
	int size;
} fields[] = {
	FIELD("eth_src", eth.src),
	FIELD("eth_dst", eth.dst),
	FIELD("eth_type", basic.n_proto),
	FIELD("ip_proto", basic.ip_proto),
	FIELD("ip_src", ipv4.src),
	FIELD("ip_dst", ipv4.dst),
	FIELD("ip6_src", ipv6.src),
	FIELD("ip6_dst", ipv6.dst),
	FIELD("l4_src", ports.src),
	FIELD("l4_dst", ports.dst),
	FIELD("tcp_flags", tcp.flags),
	FIELD("ip_tos", ip.tos),
	FIELD("ip_ttl", ip.ttl),
	FIELD("enc_key", enc_keyid.keyid),
	FIELD("enc_src", enc_ipv4.src),
	FIELD("enc_dst", enc_ipv4.dst),
	FIELD("enc_l4_src", enc_ports.src),
	FIELD("enc_l4_dst", enc_ports.dst),
	FIELD("enc_tos", enc_ip.tos),
	FIELD("enc_ttl", enc_ip.ttl),
};

static const char * const bases[] = {
	[FLOW_ACT_MANGLE_HDR_TYPE_ETH] = "eth",
	[FLOW_ACT_MANGLE_HDR_TYPE_IP4] = "ip",
	[FLOW_ACT_MANGLE_HDR_TYPE_IP6] = "ip6",
	[FLOW_ACT_MANGLE_HDR_TYPE_TCP] = "tcp",
	[FLOW_ACT_MANGLE_HDR_TYPE_UDP] = "udp",
};

/* %*phN shows at most 64 bytes. */
static void show_bytes(struct seq_file *out, const u8 *bytes, unsigned int size)
{
	while (size--)
		seq_printf(out, "%02x", *bytes++);
}

static void show_match(struct seq_file *out, const struct rule *rule)
{
	const u8 *key = (const u8 *)&rule->key, *mask = (const u8 *)&rule->mask;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		const u8 *value = key + fields[i].offset, *bits = mask + fields[i].offset;

		if (memchr_inv(bits, 0, fields[i].size))
			seq_printf(out, " %s=%*phN/%*phN", fields[i].name, fields[i].size, value, fields[i].size, bits);
	}
	/* The tag as a number, PCP in bits 15 to 13 (IEEE 802.1Q, 9.6); also of any tag, 0000/0000. */
	if (rule->key.vlan.vlan_tpid)
		seq_printf(out, " vlan=%04x/%04x", (__force u16)rule->key.vlan.vlan_tci, (__force u16)rule->mask.vlan.vlan_tci);
	if (rule->mask.enc_opts.len) {
		seq_puts(out, " enc_opts=");
		show_bytes(out, rule->key.enc_opts.data, rule->key.enc_opts.len);
		seq_putc(out, '/');
		show_bytes(out, rule->mask.enc_opts.data, rule->key.enc_opts.len);
	}
	/* FLOW_DIS_IS_FRAGMENT is bit 0, FLOW_DIS_FIRST_FRAG bit 1. */
	if (rule->mask.control.flags)
		seq_printf(out, " frag=%02x/%02x", rule->key.control.flags, rule->mask.control.flags);
}

static void show_encapsulation(struct seq_file *out, const struct ip_tunnel_info *info)
{
	const struct ip_tunnel_key *key = &info->key;

	seq_printf(out, " encap:dst=%pI4,src=%pI4", &key->u.ipv4.dst, &key->u.ipv4.src);
	if (key->tun_flags & TUNNEL_KEY)
		seq_printf(out, ",key=%u", be32_to_cpu(tunnel_id_to_key32(key->tun_id)));
	seq_printf(out, ",port=%u,tos=%u,ttl=%u", ntohs(key->tp_dst), key->tos, key->ttl);
	if (key->tun_flags & TUNNEL_CSUM)
		seq_puts(out, ",csum");
	if (key->tun_flags & TUNNEL_DONT_FRAGMENT)
		seq_puts(out, ",df");
	if (info->options_len) {
		seq_puts(out, ",options=");
		show_bytes(out, (const u8 *)(info + 1), info->options_len);
	}
}

static void show_step(struct seq_file *out, const struct step *step)
{
	switch (step->id) {
	case FLOW_ACTION_MANGLE:
		seq_printf(out, " set:%s+%u=%4phN/%4phN", bases[step->base], step->offset, &step->value, &step->mask);
		break;
	case FLOW_ACTION_CSUM:
		seq_puts(out, " csum");
		break;
	case FLOW_ACTION_MIRRED:
		seq_printf(out, " mirror:%s", step->device);
		break;
	case FLOW_ACTION_REDIRECT:
		seq_printf(out, " redirect:%s", step->device);
		break;
	case FLOW_ACTION_TUNNEL_ENCAP:
		show_encapsulation(out, step->info);
		break;
	case FLOW_ACTION_TUNNEL_DECAP:
		seq_puts(out, " decap");
		break;
	case FLOW_ACTION_VLAN_PUSH:
		seq_printf(out, " push_vlan:vid=%u,pcp=%u", step->tci & VLAN_VID_MASK, step->tci >> VLAN_PRIO_SHIFT);
		break;
	case FLOW_ACTION_VLAN_POP:
		seq_puts(out, " pop_vlan");
		break;
	default:
		seq_puts(out, " drop");
	}
}

static int rules_show(struct seq_file *out, void *unused)
{
	struct rule *rule;
	unsigned int i;

	mutex_lock(&rules_lock);
	list_for_each_entry(rule, &rules, list) {
		seq_printf(out, "port=%s", rule->ingress->representor->name);
		if (rule->block->tunnel != TUNNEL_NONE)
			seq_printf(out, " via=%s", rule->block->name);
		seq_printf(out, " pref=%u cookie=%*phN packets=%lld bytes=%lld passed=%d match", rule->prio, (int)rule->cookie_len,
			   rule->cookie, atomic64_read(&rule->hit.packets), atomic64_read(&rule->hit.bytes),
			   atomic_read(&rule->passed));
		show_match(out, rule);
		seq_puts(out, " actions");
		for (i = 0; i < rule->n_steps; i++)
			show_step(out, &rule->steps[i]);
		seq_putc(out, '\n');
	}
	mutex_unlock(&rules_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(rules);

static void show_counter(struct seq_file *out, const char *name, const struct counter *counter)
{
	seq_printf(out, " %s_packets=%lld %s_bytes=%lld", name, atomic64_read(&counter->packets), name,
		   atomic64_read(&counter->bytes));
}

static int ports_show(struct seq_file *out, void *unused)
{
	unsigned int i;

	for (i = 0; i < n_ports; i++) {
		seq_printf(out, "port=%s", ports[i].representor->name);
		show_counter(out, "hit", &ports[i].hit);
		show_counter(out, "miss", &ports[i].miss);
		show_counter(out, "out", &ports[i].out);
		show_counter(out, "too_long", &ports[i].too_long);
		seq_printf(out, " sas=%d", atomic_read(&ports[i].sas));
		seq_putc(out, '\n');
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ports);

static struct dentry *directory;

void truth_init(void)
{
	directory = debugfs_create_dir(KBUILD_MODNAME, NULL);
	debugfs_create_file("rules", 0444, directory, NULL, &rules_fops);
	debugfs_create_file("ports", 0444, directory, NULL, &ports_fops);
}

void truth_exit(void)
{
	debugfs_remove_recursive(directory);
}
