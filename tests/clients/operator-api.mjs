// Accounts and keys, created through the operator API of the gateway under test.

import { randomUUID } from 'node:crypto';

async function call(method, path, body) {
  const response = await fetch(process.env.TOLLGATE_OPERATOR_URL + path, {
    method,
    headers: { authorization: `Bearer ${process.env.TOLLGATE_OPERATOR_TOKEN}` },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

// A new account with credit and a key, so that no other test shares its limits.
export async function createAccount(track = 'business', tier = 'flex') {
  const email = `${randomUUID()}@example.com`;
  const { id } = await call('POST', '/operator/accounts', { email, track, tier });
  await call('POST', `/operator/accounts/${id}/grants`, { amount: '10.00' });
  const { key } = await call('POST', `/operator/accounts/${id}/keys`, { name: 'client tests' });
  return { id, key };
}

export const closeAccount = ({ id }) => call('PATCH', `/operator/accounts/${id}`, { closed: true });
export const setLimit = ({ id }, model, ceilings) => call('PUT', '/operator/limits', { account: id, model, ...ceilings });

// How many requests of the account were charged, once none is running.
export async function charges({ id }) {
  const path = `/operator/accounts/${id}`;
  while ((await call('GET', path)).held !== '0.000000') await new Promise((done) => setTimeout(done, 50));
  return (await call('GET', `${path}/usage`)).data.length;
}
