/** Reading the clock and the process table for the bench: medians, CPU and memory of another process (Linux: /proc). */
import { readFileSync } from 'node:fs';

export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) throw new Error('a figure without measurements');
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}
export const median = (values: readonly number[]): number => quantile(values, 0.5);
export const round = (value: number, digits = 1): number => Number(value.toFixed(digits));

/** Kernel ticks per second: 100 on every Linux that Node runs on (`getconf CLK_TCK`). */
const TICKS_PER_S = 100;

/** User and system CPU that a process has used, in ms. */
export function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The command name may hold spaces and parentheses: fields are counted behind its last one.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_S) * 1_000;
}
export function rssMib(pid: number): number {
  const line = /^VmRSS:\s+(\d+) kB/mu.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(line?.[1]) / 1024;
}
