/** Accounts for tests and the demo, through Synapse's registration by shared secret: open registration stays off. */
import { createHmac } from 'node:crypto';
import { matrixRequest } from './matrix-request.ts';

export interface UserSession {
  readonly userId: string;
  readonly accessToken: string;
  readonly deviceId: string;
}
export interface RegisterOptions {
  readonly username: string;
  readonly password: string;
  readonly admin?: boolean;
  readonly displayName?: string;
}
export interface LoginOptions {
  readonly username: string;
  readonly password: string;
  readonly deviceId?: string;
}
interface SessionAnswer {
  readonly user_id: string;
  readonly access_token: string;
  readonly device_id: string;
}

const REGISTER = '/_synapse/admin/v1/register';

/** @throws MatrixError M_USER_IN_USE when the name exists: use `login`. */
export async function registerUser(server: { baseUrl: string; secret: string }, user: RegisterOptions): Promise<UserSession> {
  const { nonce } = await matrixRequest<{ nonce: string }>(server.baseUrl, 'GET', REGISTER);
  const { username, password, admin = false, displayName } = user;
  const signed = [nonce, username, password, admin ? 'admin' : 'notadmin'].join('\0');
  const mac = createHmac('sha1', server.secret).update(signed).digest('hex');
  const body = { nonce, username, password, admin, mac, ...(displayName === undefined ? {} : { displayname: displayName }) };
  return readSession(await matrixRequest<SessionAnswer>(server.baseUrl, 'POST', REGISTER, { body }));
}

export async function loginUser(baseUrl: string, { username, password, deviceId }: LoginOptions): Promise<UserSession> {
  const body = {
    type: 'm.login.password',
    identifier: { type: 'm.id.user', user: username },
    password,
    ...(deviceId === undefined ? {} : { device_id: deviceId }),
  };
  return readSession(await matrixRequest<SessionAnswer>(baseUrl, 'POST', '/_matrix/client/v3/login', { body }));
}

const readSession = (answer: SessionAnswer): UserSession => ({
  userId: answer.user_id,
  accessToken: answer.access_token,
  deviceId: answer.device_id,
});
