/** What a command replaces stays beside it, under a name that is not taken: nothing that an operator may still need is overwritten. */
import { access } from 'node:fs/promises';

/** `<path>.old`, or with a number behind it. */
export async function freeName(path: string): Promise<string> {
  for (let count = 0; ; count += 1) {
    const name = count === 0 ? `${path}.old` : `${path}.old${count}`;
    if (!(await exists(name))) return name;
  }
}

export const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
