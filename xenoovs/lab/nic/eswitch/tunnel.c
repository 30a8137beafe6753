// SPDX-License-Identifier: GPL-2.0
/*
 * VXLAN, Geneve and GRE over IPv4.
 *
 * Out: a rule of a port encapsulates frames and redirects them to a tunnel device. The kernel's routes and neighbours
 * say by which port they leave, when the rule comes and for each frame; while they do not, the frame goes to the CPU.
 * In: the filters of tunnel devices are rules of the port that has the tunnel's local address. A tunnel device is not
 * of this driver, so it asks for its filters (flow_indr_dev_register).
 */
#include <linux/etherdevice.h>
#include <linux/inetdevice.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/udp.h>
#include <net/geneve.h>
#include <net/gre.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <net/vxlan.h>
#include <net/xfrm.h>
#include "eswitch.h"

#define VXLAN_PORT 4789		/* RFC 7348 */
#define GENEVE_PORT 6081	/* RFC 8926 */
#define FIRST_SOURCE_PORT 0xc000	/* RFC 7348, section 5: of the dynamic ports */

static bool xfrm_aware = true;
module_param(xfrm_aware, bool, 0644);
MODULE_PARM_DESC(xfrm_aware, "Whether tunnels that IPsec policies cover stay with the CPU; N: they leave in the clear");

LIST_HEAD(block_cbs);		/* of this driver; RTNL or the lock of flow_indr_dev_register() */
static LIST_HEAD(blocks);	/* of tunnel devices; rules_lock */

enum tunnel tunnel_of(const struct net_device *dev)
{
	if (netif_is_vxlan(dev))
		return TUNNEL_VXLAN;
	if (netif_is_geneve(dev))
		return TUNNEL_GENEVE;
	return netif_is_gretap(dev) ? TUNNEL_GRE : TUNNEL_NONE;
}

/* What follows parses the outer headers. Each returns the length of what it read, 0 for what this NIC does not know. */

static unsigned int parse_vxlan(const struct vxlanhdr *vxlan, struct headers *headers)
{
	if (vxlan->vx_flags != VXLAN_HF_VNI)
		return 0;
	headers->enc_keyid.keyid = vxlan_vni(vxlan->vx_vni);
	return sizeof(*vxlan);
}

static unsigned int parse_geneve(const struct genevehdr *geneve, unsigned int size, struct headers *headers)
{
	unsigned int options = geneve->opt_len * 4;

	if (geneve->ver || geneve->oam || geneve->proto_type != htons(ETH_P_TEB) ||
	    sizeof(*geneve) + options > size)
		return 0;
	headers->enc_keyid.keyid = cpu_to_be32(geneve->vni[0] << 16 | geneve->vni[1] << 8 | geneve->vni[2]);
	if (options) {
		memcpy(headers->enc_opts.data, geneve + 1, options);
		headers->enc_opts.len = options;
		headers->enc_opts.dst_opt_type = TUNNEL_GENEVE_OPT;
	}
	return sizeof(*geneve) + options;
}

static unsigned int parse_udp(const struct udphdr *udp, unsigned int size, struct headers *headers)
{
	unsigned int length = 0;

	if (size < sizeof(*udp) + sizeof(struct vxlanhdr))
		return 0;
	headers->enc_ports.src = udp->source;
	headers->enc_ports.dst = udp->dest;
	if (udp->dest == htons(VXLAN_PORT)) {
		headers->tunnel = TUNNEL_VXLAN;
		length = parse_vxlan((const struct vxlanhdr *)(udp + 1), headers);
	} else if (udp->dest == htons(GENEVE_PORT)) {
		headers->tunnel = TUNNEL_GENEVE;
		length = parse_geneve((const struct genevehdr *)(udp + 1), size - sizeof(*udp), headers);
	}
	return length ? length + sizeof(*udp) : 0;
}

static unsigned int parse_gre(const struct gre_base_hdr *gre, unsigned int size, struct headers *headers)
{
	unsigned int length = sizeof(*gre);

	if (size < sizeof(*gre) + sizeof(__be32) || gre->protocol != htons(ETH_P_TEB) || gre->flags & ~GRE_KEY)
		return 0;
	headers->tunnel = TUNNEL_GRE;
	if (gre->flags & GRE_KEY) {
		memcpy(&headers->enc_keyid.keyid, gre + 1, sizeof(__be32));
		length += sizeof(__be32);
	}
	return length;
}

/* `headers` are those of the whole frame, and become those of a tunnel. Returns false where there is no inner frame. */
bool parse_inner(const struct sk_buff *skb, struct headers *headers)
{
	const struct iphdr *ip = (const struct iphdr *)(skb->data + ETH_HLEN);
	unsigned int at, length = 0, size = skb_headlen(skb);

	/* The dissector has seen the whole IP header when it knows the protocol. */
	if (headers->basic.n_proto != htons(ETH_P_IP) || headers->vlan.vlan_tpid || !headers->basic.ip_proto ||
	    ip_is_fragment(ip))
		return false;
	memset(headers, 0, sizeof(*headers));
	at = ETH_HLEN + ip->ihl * 4;
	if (ip->protocol == IPPROTO_UDP && at < size)
		length = parse_udp((const struct udphdr *)(skb->data + at), size - at, headers);
	else if (ip->protocol == IPPROTO_GRE && at < size)
		length = parse_gre((const struct gre_base_hdr *)(skb->data + at), size - at, headers);
	if (!length || at + length + ETH_HLEN > size)
		return false;
	headers->enc_control.addr_type = FLOW_DISSECTOR_KEY_IPV4_ADDRS;
	headers->enc_ipv4.src = ip->saddr;
	headers->enc_ipv4.dst = ip->daddr;
	headers->enc_ip.tos = ip->tos;
	headers->enc_ip.ttl = ip->ttl;
	headers->inner = at + length;
	parse_frame(skb, headers->inner, headers);
	return true;
}

/* Packets of a tunnel enter by the port that has the tunnel's local address. */
int find_ingress(struct rule *rule, struct netlink_ext_ack *extack)
{
	const struct net_device *dev;

	if (rule->block->port) {
		rule->ingress = rule->block->port;
		return 0;
	}
	if (rule->key.enc_control.addr_type != FLOW_DISSECTOR_KEY_IPV4_ADDRS) {
		NL_SET_ERR_MSG_MOD(extack, "tunnels over IPv6 are not supported");
		return -EOPNOTSUPP;
	}
	if (rule->mask.enc_ipv4.dst != htonl(INADDR_BROADCAST)) {
		NL_SET_ERR_MSG_MOD(extack, "a rule of a tunnel must match its whole local address");
		return -EOPNOTSUPP;
	}
	rcu_read_lock();
	dev = __ip_dev_find(eswitch_net(), rule->key.enc_ipv4.dst, false);
	rule->ingress = dev ? port_of_representor(dev) : NULL;
	rcu_read_unlock();
	if (rule->ingress)
		return 0;
	NL_SET_ERR_MSG_MOD(extack, "the tunnel's local address is on no port of this eswitch");
	return -EOPNOTSUPP;
}

static u8 protocol_of(const struct step *step)
{
	return step->tunnel == TUNNEL_GRE ? IPPROTO_GRE : IPPROTO_UDP;
}

/* The route of encapsulated frames; `flow` gets the local address. The caller must release it. */
static struct rtable *route_of(const struct step *step, struct flowi4 *flow)
{
	const struct ip_tunnel_key *key = &step->info->key;

	*flow = (struct flowi4) {
		.daddr = key->u.ipv4.dst,
		.saddr = key->u.ipv4.src,
		.flowi4_tos = RT_TOS(key->tos),
	};
	return ip_route_output_key(eswitch_net(), flow);
}

/* With a protocol the kernel also asks the policies of IPsec, and may then have another route. */
static bool is_for_ipsec(const struct step *step, const struct flowi4 *found, __be16 source_port)
{
	struct flowi4 flow = *found;
	struct rtable *route;
	bool is_plain;

	if (!READ_ONCE(xfrm_aware))
		return false;
	flow.flowi4_proto = protocol_of(step);
	flow.fl4_sport = source_port;
	flow.fl4_dport = step->info->key.tp_dst;
	route = ip_route_output_key(eswitch_net(), &flow);
	if (IS_ERR(route))
		return true;
	is_plain = !dst_xfrm(&route->dst) && port_of_representor(route->dst.dev);
	ip_rt_put(route);
	return !is_plain;
}

int check_encapsulation(const struct step *step, struct netlink_ext_ack *extack)
{
	struct rtable *route;
	struct flowi4 flow;
	bool is_port;

	if (ip_tunnel_info_af(step->info) != AF_INET) {
		NL_SET_ERR_MSG_MOD(extack, "tunnels over IPv6 are not supported");
		return -EOPNOTSUPP;
	}
	if (step->tunnel == TUNNEL_GRE && step->info->key.tun_flags & TUNNEL_CSUM) {
		NL_SET_ERR_MSG_MOD(extack, "checksums of GRE are not supported");
		return -EOPNOTSUPP;
	}
	route = route_of(step, &flow);
	if (IS_ERR(route)) {
		NL_SET_ERR_MSG_MOD(extack, "there is no route to the tunnel's remote address");
		return -EOPNOTSUPP;
	}
	is_port = port_of_representor(route->dst.dev);
	ip_rt_put(route);
	if (!is_port) {
		NL_SET_ERR_MSG_MOD(extack, "packets of this tunnel leave by no port of this eswitch");
		return -EOPNOTSUPP;
	}
	if (is_for_ipsec(step, &flow, htons(FIRST_SOURCE_PORT))) {
		NL_SET_ERR_MSG_MOD(extack, "an IPsec policy covers the packets of this tunnel");
		return -EOPNOTSUPP;
	}
	return 0;
}

struct way_out {
	struct port *port;
	__be32 local;
	u8 from[ETH_ALEN], to[ETH_ALEN];
};

/* The MAC address of the next hop. Returns false as long as it is not known; the kernel then asks for it. */
static bool resolve(const struct rtable *route, __be32 remote, u8 *mac)
{
	struct neighbour *neigh = dst_neigh_lookup(&route->dst, &remote);
	bool is_valid;

	if (IS_ERR_OR_NULL(neigh))
		return false;
	/* Also for one that is valid and old: nobody else in the kernel sees that it is in use. */
	neigh_event_send(neigh, NULL);
	is_valid = READ_ONCE(neigh->nud_state) & NUD_VALID;
	neigh_ha_snapshot(mac, neigh, route->dst.dev);
	neigh_release(neigh);
	return is_valid;
}

static bool find_path(const struct step *step, struct way_out *path)
{
	struct flowi4 flow;
	struct rtable *route = route_of(step, &flow);
	bool is_found;

	if (IS_ERR(route))
		return false;
	path->port = port_of_representor(route->dst.dev);
	path->local = flow.saddr;
	ether_addr_copy(path->from, route->dst.dev->dev_addr);
	is_found = path->port && resolve(route, flow.daddr, path->to) &&
		   !is_for_ipsec(step, &flow, htons(FIRST_SOURCE_PORT));
	ip_rt_put(route);
	return is_found;
}

/* Whether the NIC can do all steps of a rule now. Under rcu_read_lock(). */
bool is_ready(const struct rule *rule)
{
	const struct step *step;
	struct way_out path;

	for (step = rule->steps; step < rule->steps + rule->n_steps; step++)
		if (step->tunnel != TUNNEL_NONE && !find_path(step, &path))
			return false;
	return true;
}

static unsigned int header_length(const struct step *step)
{
	const struct ip_tunnel_info *info = step->info;

	switch (step->tunnel) {
	case TUNNEL_VXLAN:
		return sizeof(struct vxlanhdr);
	case TUNNEL_GENEVE:
		return sizeof(struct genevehdr) + info->options_len;
	default:
		return sizeof(struct gre_base_hdr) + (info->key.tun_flags & TUNNEL_KEY ? sizeof(__be32) : 0);
	}
}

static void push_header(struct sk_buff *skb, const struct step *step)
{
	const struct ip_tunnel_info *info = step->info;
	__be32 key = tunnel_id_to_key32(info->key.tun_id);
	u32 vni = be32_to_cpu(key);
	void *header = memset(skb_push(skb, header_length(step)), 0, header_length(step));
	struct vxlanhdr *vxlan = header;
	struct genevehdr *geneve = header;
	struct gre_base_hdr *gre = header;

	switch (step->tunnel) {
	case TUNNEL_VXLAN:
		vxlan->vx_flags = VXLAN_HF_VNI;
		vxlan->vx_vni = vxlan_vni_field(key);
		break;
	case TUNNEL_GENEVE:
		geneve->opt_len = info->options_len / 4;
		geneve->critical = !!(info->key.tun_flags & TUNNEL_CRIT_OPT);
		geneve->proto_type = htons(ETH_P_TEB);
		geneve->vni[0] = vni >> 16;
		geneve->vni[1] = vni >> 8;
		geneve->vni[2] = vni;
		memcpy(geneve + 1, info + 1, info->options_len);
		break;
	default:
		gre->protocol = htons(ETH_P_TEB);
		if (info->key.tun_flags & TUNNEL_KEY) {
			gre->flags = GRE_KEY;
			memcpy(gre + 1, &key, sizeof(key));
		}
	}
}

/* Connections differ in it, so that whatever is on the way can balance them. */
static __be16 source_port(const struct headers *headers)
{
	u32 hash = jhash(&headers->ipv4, sizeof(headers->ipv4), headers->basic.ip_proto);

	hash = jhash(&headers->ipv6, sizeof(headers->ipv6), hash);
	return htons(FIRST_SOURCE_PORT | (jhash(&headers->ports, sizeof(headers->ports), hash) & ~FIRST_SOURCE_PORT));
}

static void push_udp(struct sk_buff *skb, const struct step *step, const struct headers *headers, __be32 local)
{
	const struct ip_tunnel_key *key = &step->info->key;
	struct udphdr *udp = skb_push(skb, sizeof(*udp));

	udp->source = source_port(headers);
	udp->dest = key->tp_dst;
	udp->len = htons(skb->len);
	udp->check = 0;
	if (key->tun_flags & TUNNEL_CSUM)
		udp->check = csum_tcpudp_magic(local, key->u.ipv4.dst, skb->len, IPPROTO_UDP,
					       skb_checksum(skb, 0, skb->len, 0)) ?: CSUM_MANGLED_0;
}

static void push_ip(struct sk_buff *skb, const struct step *step, __be32 local)
{
	const struct ip_tunnel_key *key = &step->info->key;
	struct iphdr *ip = skb_push(skb, sizeof(*ip));

	*ip = (struct iphdr) {
		.version = 4,
		.ihl = sizeof(*ip) / 4,
		.tos = key->tos,
		.tot_len = htons(skb->len),
		.frag_off = key->tun_flags & TUNNEL_DONT_FRAGMENT ? htons(IP_DF) : 0,
		.ttl = key->ttl ?: IPDEFTTL,
		.protocol = protocol_of(step),
		.saddr = local,
		.daddr = key->u.ipv4.dst,
	};
	ip_send_check(ip);
}

/* Put a frame into the tunnel of a step. Returns the port by which it leaves, NULL: the frame is lost. */
struct port *encapsulate(struct sk_buff *skb, const struct step *step, const struct headers *headers)
{
	unsigned int length = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr) + header_length(step);
	struct ethhdr *eth;
	struct way_out path;

	if (!find_path(step, &path) || skb_cow_head(skb, length))
		return NULL;
	push_header(skb, step);
	if (step->tunnel != TUNNEL_GRE)
		push_udp(skb, step, headers, path.local);
	push_ip(skb, step, path.local);
	eth = skb_push(skb, ETH_HLEN);
	ether_addr_copy(eth->h_dest, path.to);
	ether_addr_copy(eth->h_source, path.from);
	eth->h_proto = htons(ETH_P_IP);
	return path.port;
}

/* The filters of tunnel devices. */

static void release_block(void *block)
{
	mutex_lock(&rules_lock);
	list_del(&((struct block *)block)->list);
	mutex_unlock(&rules_lock);
	kfree(block);
}

static int bind_block(struct net_device *dev, struct Qdisc *sch, struct flow_block_offload *offload, void *data,
		      void (*cleanup)(struct flow_block_cb *block_cb))
{
	struct flow_block_cb *bound;
	struct block *block = kzalloc(sizeof(*block), GFP_KERNEL);

	if (!block)
		return -ENOMEM;
	block->dev = dev;
	block->tunnel = tunnel_of(dev);
	strscpy(block->name, dev->name, sizeof(block->name));
	bound = flow_indr_block_cb_alloc(block_cb, block, block, release_block, offload, dev, sch, data, NULL, cleanup);
	if (IS_ERR(bound)) {
		kfree(block);
		return PTR_ERR(bound);
	}
	mutex_lock(&rules_lock);
	list_add_tail(&block->list, &blocks);
	mutex_unlock(&rules_lock);
	flow_block_cb_add(bound, offload);
	list_add_tail(&bound->driver_list, &block_cbs);
	return 0;
}

static struct block *find_block(const struct net_device *dev)
{
	struct block *block, *found = NULL;

	mutex_lock(&rules_lock);
	list_for_each_entry(block, &blocks, list)
		if (block->dev == dev)
			found = block;
	mutex_unlock(&rules_lock);
	return found;
}

static int unbind_block(const struct net_device *dev, struct flow_block_offload *offload)
{
	struct block *block = find_block(dev);
	struct flow_block_cb *bound = block ? flow_block_cb_lookup(offload->block, block_cb, block) : NULL;

	if (!bound)
		return -ENOENT;
	flow_indr_block_cb_remove(bound, offload);
	list_del(&bound->driver_list);
	return 0;
}

/* The kernel offers every block of every device that has no driver for it; and, without a device, single actions. */
static int setup_block(struct net_device *dev, struct Qdisc *sch, void *priv, enum tc_setup_type type, void *type_data,
		       void *data, void (*cleanup)(struct flow_block_cb *block_cb))
{
	struct flow_block_offload *offload = type_data;

	if (type != TC_SETUP_BLOCK || tunnel_of(dev) == TUNNEL_NONE ||
	    offload->binder_type != FLOW_BLOCK_BINDER_TYPE_CLSACT_INGRESS)
		return -EOPNOTSUPP;
	if (offload->command == FLOW_BLOCK_BIND)
		return bind_block(dev, sch, offload, data, cleanup);
	return unbind_block(dev, offload);
}

int tunnels_init(void)
{
	return flow_indr_dev_register(setup_block, NULL);
}

void tunnels_exit(void)
{
	flow_indr_dev_unregister(setup_block, NULL, release_block);
}
