import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isPublicAddress } from '../../../src/net/public-address.ts';

test.each([
  ['unspecified', '0.0.0.0'],
  ['this network', '0.1.2.3'],
  ['private 10', '10.0.0.1'],
  ['private 172', '172.16.0.1'],
  ['private 172, the last', '172.31.255.255'],
  ['private 192', '192.168.1.1'],
  ['carrier-grade NAT', '100.64.0.1'],
  ['carrier-grade NAT, the metadata service of Alibaba', '100.100.100.200'],
  ['loopback', '127.0.0.1'],
  ['loopback, another', '127.255.255.254'],
  ['link-local, the metadata service of most clouds', '169.254.169.254'],
  ['the wire server of Azure', '168.63.129.16'],
  ['IETF protocols, the metadata service of Oracle Cloud', '192.0.0.192'],
  ['documentation', '192.0.2.1'],
  ['documentation', '198.51.100.1'],
  ['documentation', '203.0.113.1'],
  ['6to4 relay', '192.88.99.1'],
  ['benchmarks', '198.19.0.1'],
  ['multicast', '224.0.0.1'],
  ['multicast, the last', '239.255.255.255'],
  ['reserved', '240.0.0.1'],
  ['broadcast', '255.255.255.255'],
  ['unspecified', '::'],
  ['loopback', '::1'],
  ['IPv4-mapped loopback', '::ffff:127.0.0.1'],
  ['IPv4-mapped loopback in hex', '::ffff:7f00:1'],
  ['IPv4-mapped loopback, written out', '0:0:0:0:0:ffff:7f00:0001'],
  ['IPv4-mapped private', '::ffff:10.0.0.1'],
  ['IPv4-mapped public', '::ffff:8.8.8.8'],
  ['IPv4-compatible loopback', '::127.0.0.1'],
  ['IPv4-translated loopback', '::ffff:0:127.0.0.1'],
  ['NAT64 of loopback', '64:ff9b::127.0.0.1'],
  ['NAT64 of link-local', '64:ff9b::a9fe:a9fe'],
  ['NAT64 of private', '64:ff9b:0:0:0:0:a00:1'],
  ['NAT64 of unspecified', '64:ff9b::'],
  ['local NAT64', '64:ff9b:1::8.8.8.8'],
  ['6to4 of loopback', '2002:7f00:1::1'],
  ['6to4 of private', '2002:a00:1::1'],
  ['Teredo', '2001:0:4136:e378:8000:63bf:3fff:fdd2'],
  ['ORCHID', '2001:20::1'],
  ['documentation', '2001:db8::1'],
  ['documentation', '3fff::1'],
  ['segment routing', '5f00::1'],
  ['discard', '100::1'],
  ['unique local', 'fc00::1'],
  ['unique local, the metadata service of AWS', 'fd00:ec2::254'],
  ['link-local', 'fe80::1'],
  ['link-local with a zone', 'fe80::1%eth0'],
  ['public with a zone', '2606:4700::1111%1'],
  ['site-local', 'fec0::1'],
  ['multicast', 'ff02::1'],
  ['reserved', '4000::1'],
  ['a name', 'localhost'],
  ['nothing', ''],
  ['a short form of loopback', '127.1'],
  ['an octal form of loopback', '0177.0.0.1'],
  ['a number', '2130706433'],
])('%s (%s) is not public', (_name, address) => {
  expect(isPublicAddress(address)).toBe(false);
});

test.each([
  '8.8.8.8',
  '172.15.255.255',
  '172.32.0.1',
  '100.63.255.255',
  '223.255.255.254',
  '2606:4700::1111',
  '2a00:1450:4001::1',
  '64:ff9b::808:808',
  '64:ff9b::8.8.8.8',
])('%s is public', (address) => {
  expect(isPublicAddress(address)).toBe(true);
});

test('an IPv4 address behind NAT64 is as public as it is by itself', () => {
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      expect(isPublicAddress(`64:ff9b::${address}`)).toBe(isPublicAddress(address));
      expect(isPublicAddress(`::ffff:${address}`)).toBe(false);
    }),
  );
});

test('any text has an answer', () => {
  fc.assert(fc.property(fc.oneof(fc.string(), fc.ipV6()), (text) => typeof isPublicAddress(text) === 'boolean'));
});
