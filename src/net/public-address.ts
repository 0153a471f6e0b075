/**
 * Which IP addresses belong to the public internet. A name that a stranger chose may lead to this machine, its network or the metadata service
 * of its cloud, and whatever answers there would be spoken to with our rights (research/ucan.md §3.2 J). IPv4 is a list of what is not public
 * (IANA special-purpose registry, 2026); IPv6 the other way round: only 2000::/3 less its special parts, so that a new kind is refused.
 */
import { BlockList, isIPv4, isIPv6 } from 'node:net';

const NOT_PUBLIC_V4 = listOf('ipv4', [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  // Multicast, reserved, broadcast.
  ['224.0.0.0', 3],
  // The host of a virtual machine at Azure answers here; it is no place on the internet.
  ['168.63.129.16', 32],
]);
const GLOBAL_V6 = listOf('ipv6', [['2000::', 3]]);
const NOT_PUBLIC_V6 = listOf('ipv6', [
  // Teredo, ORCHID, benchmarking.
  ['2001::', 23],
  ['2001:db8::', 32],
  // 6to4: an IPv4 address in disguise, and retired (RFC 7526).
  ['2002::', 16],
  ['3fff::', 20],
]);
/** NAT64 (RFC 6052). Where there is only IPv6, this is how every IPv4 service is reached, so the address inside decides. */
const NAT64 = listOf('ipv6', [['64:ff9b::', 96]]);

function listOf(family: 'ipv4' | 'ipv6', subnets: readonly (readonly [string, number])[]): BlockList {
  const list = new BlockList();
  for (const [address, prefix] of subnets) list.addSubnet(address, prefix, family);
  return list;
}

/** False for whatever is no IP address, too. */
export function isPublicAddress(address: string): boolean {
  if (isIPv4(address)) return !NOT_PUBLIC_V4.check(address, 'ipv4');
  // A zone (`%eth0`) means a link.
  if (!isIPv6(address) || address.includes('%')) return false;
  if (NAT64.check(address, 'ipv6')) return isPublicAddress(lastIpv4Of(address));
  return GLOBAL_V6.check(address, 'ipv6') && !NOT_PUBLIC_V6.check(address, 'ipv6');
}

/** The last 32 bits. A URL writes every spelling of an IPv6 address in the one form without a dotted part. */
function lastIpv4Of(address: string): string {
  const groups = new URL(`http://[${address}]/`).hostname.slice(1, -1).split(':');
  const [high = 0, low = 0] = groups.slice(-2).map((group) => Number.parseInt(group === '' ? '0' : group, 16));
  return [high >> 8, high & 0xff, low >> 8, low & 0xff].join('.');
}
