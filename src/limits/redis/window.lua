-- The window of one account with one model, kept by the server. Every operation is one run of this script.
--
-- KEYS   the partition's mark; then, for each window, its times (a sorted set of entries, scored by the
--        milliseconds of their admission) and its counts (a hash)
-- ARGV   the operation and its arguments. The operation's name may be followed by `@` and a time that replaces the
--        server's clock, in tests only; and by `~`, the earliest and the latest time that the server's clock can show
--        if it has not jumped, separated by `:`.
--
-- An entry is named "call.step". Step 0 is the request itself, and only it counts as a request. Entries are numbered
-- in the order of their admission, and BLOCK consecutive numbers are a block. The fields of the counts are
--   entry           "tokens:block"; BURIED in place of the tokens is a tombstone, which cannot be admitted again
--   #n #t #s #b     requests, tokens, the next number, the lowest block that has fields
--   &block @block   requests and tokens of a block
--   ^block          when its first entry was admitted
-- The sums of the blocks give the waiting time of a refusal in a large window without reading all of its entries:
-- refusals come in floods, and must not cost much more than admissions.

local WINDOW, KEPT, CHUNK, BLOCK = 60000, 61000, 500, 64
-- By how many milliseconds the clocks of gateways may differ: one gateway dates a call, another computes its age.
local SKEW = 5000
local BURIED = 'x'

local mark, times, counts = KEYS[1], KEYS[2], KEYS[3]
local operation, clock, earliest, latest = string.match(ARGV[1], '^(%a+)@?(%d*)~?(%d*):?(%d*)$')

local now
if clock == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
else
  now = tonumber(clock)
end

if operation == 'time' then
  return { 'time', now }
end

-- The replication ID changes with a restart and a failover. If the mark is missing or has another ID, entries may be
-- missing, too.
local replication_id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not replication_id then
  return redis.error_reply('ERR the server does not report its master_replid')
end
local marked = redis.call('GET', mark)
local doubt = '?' .. replication_id .. '?'

-- Returns the tokens and requests that an entry counts for, and its block.
local function weigh(entry, value)
  if not value then
    return 0, 0, 0
  end
  local tokens, block = string.match(value, '^(%w+):(%d+)$')
  if tokens == BURIED then
    return 0, 0, tonumber(block)
  end
  return tonumber(tokens), string.sub(entry, -2) == '.0' and 1 or 0, tonumber(block)
end

local function is_buried(value)
  return value and string.sub(value, 1, 1) == BURIED
end

-- Adds to the sums of the window and of a block.
local function add(tokens, requests, block)
  if tokens ~= 0 then
    redis.call('HINCRBY', counts, '#t', tokens)
    redis.call('HINCRBY', counts, '@' .. block, tokens)
  end
  if requests ~= 0 then
    redis.call('HINCRBY', counts, '#n', requests)
    redis.call('HINCRBY', counts, '&' .. block, requests)
  end
end

-- Calls `each(entries, values)` for the window's entries, oldest first, in chunks.
local function walk(window_times, window_counts, each)
  local from = 0
  while true do
    local entries = redis.call('ZRANGE', window_times, from, from + CHUNK - 1)
    if not entries[1] then
      return
    end
    each(entries, redis.call('HMGET', window_counts, unpack(entries)))
    from = from + CHUNK
  end
end

-- Renumbers the entries and recomputes all sums, after entries were added or moved elsewhere than at the end.
local function recount(window_times, window_counts)
  local fields, s, n, t, blocks = {}, 0, 0, 0, {}
  walk(window_times, window_counts, function(entries, values)
    for i, entry in ipairs(entries) do
      local block = math.floor(s / BLOCK)
      local tokens, requests = weigh(entry, values[i])
      local sums = blocks[block]
      if not sums then
        sums = { 0, 0, redis.call('ZSCORE', window_times, entry) }
        blocks[block] = sums
      end
      sums[1], sums[2] = sums[1] + tokens, sums[2] + requests
      s, n, t = s + 1, n + requests, t + tokens
      fields[#fields + 1] = entry
      fields[#fields + 1] = (is_buried(values[i]) and BURIED or string.format('%.0f', tokens)) .. ':' .. block
    end
  end)
  for block, sums in pairs(blocks) do
    for i, field in ipairs({ '@', '&', '^' }) do
      fields[#fields + 1] = field .. block
      fields[#fields + 1] = sums[i]
    end
  end
  redis.call('DEL', window_counts)
  redis.call('HSET', window_counts, '#n', n, '#t', t, '#s', s, '#b', 0)
  for from = 1, #fields, CHUNK do
    redis.call('HSET', window_counts, unpack(fields, from, math.min(from + CHUNK - 1, #fields)))
  end
end

-- Extends the lifetime of keys.
local function keep(...)
  for _, key in ipairs({ ... }) do
    redis.call('PEXPIRE', key, KEPT)
  end
end

if operation == 'doubt' then
  -- After a jump of the clock, a partition with a valid mark is put in doubt as well.
  if marked == replication_id and ARGV[3] ~= 'clock' then
    return { 'sound' }
  end
  -- The first gateway names the doubt, which ends when the entries have been restored. The name contains the
  -- replication ID, so a doubt from before a restart is replaced.
  if not marked or string.sub(marked, 1, #doubt) ~= doubt then
    marked = doubt .. ARGV[2]
    redis.call('SET', mark, marked)
  end
  return { 'doubtful', marked }
end

if operation == 'restore' then
  if marked == replication_id then
    return { 'sound' }
  end
  if marked ~= ARGV[2] or string.sub(marked, 1, #doubt) ~= doubt then
    return { 'unmarked' }
  end
  for i = 3, #ARGV, 5 do
    local set, hash, entry = KEYS[2 * ARGV[i]], KEYS[2 * ARGV[i] + 1], ARGV[i + 1]
    local at, by_age = tonumber(ARGV[i + 2]), now - ARGV[i + 4]
    -- If the clock was set forward since the admission, `at` is too old, and the age decides. If the clock was set
    -- back, `at` is in the future, and the entry counts from now on for a whole window.
    if by_age - at > SKEW then
      at = by_age
    end
    at = math.min(at, now)
    if now - at < WINDOW then
      local there = redis.call('ZSCORE', set, entry)
      if not there then
        redis.call('HSET', hash, entry, ARGV[i + 3] .. ':0')
      end
      if not there or tonumber(there) < at then
        redis.call('ZADD', set, at, entry)
      end
    end
  end
  for i = 2, #KEYS, 2 do
    recount(KEYS[i], KEYS[i + 1])
    keep(KEYS[i], KEYS[i + 1])
  end
  redis.call('SET', mark, replication_id)
  return { 'sound' }
end

if marked ~= replication_id then
  return { 'unmarked' }
end
if earliest ~= '' and (now < tonumber(earliest) or now > tonumber(latest)) then
  return { 'clock' }
end

-- Returns the lowest block that may have entries, or 0 for an empty window. Entries of one millisecond may be sorted
-- differently from their numbers, but there are never so many of them that they are more than one block apart.
local function lowest_block()
  local oldest = redis.call('ZRANGE', times, 0, 0)[1]
  local _, _, block = weigh(oldest, oldest and redis.call('HGET', counts, oldest))
  return math.max(block - 1, 0)
end

-- Removes entries that have left the window. If the clock was set back, later entries are moved to now: they stay for
-- a whole window from here, so no more is admitted than the ceilings allow.
local function expire()
  local latest = redis.call('ZRANGE', times, -1, -1, 'WITHSCORES')
  if not latest[1] then
    -- DEL only if the key exists. A server that is out of memory refuses a script whose first write needs memory, but
    -- lets it continue after any other write: an unneeded DEL here would let the later writes through.
    if redis.call('EXISTS', counts) == 1 then
      redis.call('DEL', counts)
    end
    return
  end
  if tonumber(latest[2]) > now then
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', times, '(' .. now, '+inf')) do
      redis.call('ZADD', times, now, entry)
    end
    recount(times, counts)
    keep(times, counts)
  end
  local oldest = redis.call('ZRANGE', times, 0, 0, 'WITHSCORES')
  if now - oldest[2] < WINDOW then
    return
  end
  local gone = redis.call('ZRANGEBYSCORE', times, '-inf', now - WINDOW)
  local blocks = {}
  for from = 1, #gone, CHUNK do
    local to = math.min(from + CHUNK - 1, #gone)
    local values = redis.call('HMGET', counts, unpack(gone, from, to))
    for i = from, to do
      local tokens, requests, block = weigh(gone[i], values[i - from + 1])
      local sums = blocks[block] or { 0, 0 }
      blocks[block] = { sums[1] + tokens, sums[2] + requests }
    end
    redis.call('HDEL', counts, unpack(gone, from, to))
  end
  redis.call('ZREMRANGEBYSCORE', times, '-inf', now - WINDOW)
  if redis.call('EXISTS', times) == 0 then
    redis.call('DEL', counts)
    return
  end
  for block, sums in pairs(blocks) do
    -- `0 - x` and not `-x`: the negative of 0 prints as "-0", which HINCRBY refuses.
    add(0 - sums[1], 0 - sums[2], block)
  end
  local lowest = lowest_block()
  for block = tonumber(redis.call('HGET', counts, '#b') or 0), lowest - 1 do
    redis.call('HDEL', counts, '&' .. block, '@' .. block, '^' .. block)
  end
  redis.call('HSET', counts, '#b', lowest)
end

-- Returns when the oldest entries with `many` requests (what = '&') or tokens ('@') will have left the window.
local function time_of_expiry(what, many)
  local block, last = lowest_block(), math.floor(redis.call('HGET', counts, '#s') / BLOCK)
  while block <= last do
    local fields = {}
    for i = block, math.min(block + CHUNK - 1, last) do
      fields[#fields + 1] = what .. i
    end
    local found = false
    for _, sum in ipairs(redis.call('HMGET', counts, unpack(fields))) do
      sum = tonumber(sum or 0)
      if sum >= many then
        found = true
        break
      end
      many, block = many - sum, block + 1
    end
    if found then
      break
    end
  end
  local first, from = redis.call('HGET', counts, '^' .. block) or '-inf', 0
  while true do
    local entries = redis.call('ZRANGEBYSCORE', times, first, '+inf', 'WITHSCORES', 'LIMIT', from, 16)
    local names = {}
    for i = 1, #entries, 2 do
      names[#names + 1] = entries[i]
    end
    if not names[1] then
      return now + WINDOW
    end
    local values = redis.call('HMGET', counts, unpack(names))
    for i, name in ipairs(names) do
      local tokens, requests, its_block = weigh(name, values[i])
      if its_block >= block then
        many = many - (what == '@' and tokens or requests)
      end
      if many <= 0 then
        return entries[2 * i] + WINDOW
      end
    end
    from = from + 16
  end
end

-- Returns the milliseconds until at least so many tokens and requests have left the window, oldest first. `n` is the
-- number of requests in the window.
local function wait(tokens, requests, n)
  local at = now
  if tokens > 0 then
    at = time_of_expiry('@', tokens)
  end
  if requests > 0 then
    -- If every entry is a request, the rank gives the one to wait for.
    if redis.call('ZCARD', times) == n then
      local entry = redis.call('ZRANGE', times, requests - 1, requests - 1, 'WITHSCORES')
      at = math.max(at, entry[2] + WINDOW)
    else
      at = math.max(at, time_of_expiry('&', requests))
    end
  end
  return at - now
end

-- Admits an entry or refuses it. Admitting one again returns the time of its first admission.
local function admit(entry, need, requests_ceiling, tokens_ceiling)
  local at = redis.call('ZSCORE', times, entry)
  if at then
    if is_buried(redis.call('HGET', counts, entry)) then
      return { 'buried' }
    end
    return { 'admitted', tonumber(at) }
  end
  local sums = redis.call('HMGET', counts, '#n', '#t', '#s')
  local n, t, s = tonumber(sums[1] or 0), tonumber(sums[2] or 0), tonumber(sums[3] or 0)
  local requests = string.sub(entry, -2) == '.0' and 1 or 0
  local too_many = requests == 1 and n >= requests_ceiling
  local too_much = t + need > tokens_ceiling
  if not too_many and not too_much then
    local block = math.floor(s / BLOCK)
    redis.call('ZADD', times, now, entry)
    redis.call('HSET', counts, entry, string.format('%.0f:%d', need, block), '#s', s + 1)
    if s % BLOCK == 0 then
      redis.call('HSET', counts, '^' .. block, now)
    end
    add(need, requests, block)
    keep(times, counts)
    return { 'admitted', now }
  end
  local ms = -1
  if requests_ceiling > 0 and need <= tokens_ceiling then
    ms = wait(t + need - tokens_ceiling, requests == 1 and n - requests_ceiling + 1 or 0, n)
  end
  return { 'refused', too_many and 1 or 0, n, t, ms }
end

-- Replaces an entry's tokens; returns whether it was there.
local function settle(entry, tokens)
  local value = redis.call('HGET', counts, entry)
  if not value or is_buried(value) then
    return false
  end
  local before, _, block = weigh(entry, value)
  redis.call('HSET', counts, entry, string.format('%.0f:%d', tokens, block))
  add(tokens - before, 0, block)
  return true
end

local entry = ARGV[2]

if operation == 'admit' then
  expire()
  return admit(entry, tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
end

if operation == 'renew' then
  local before, before_at, used = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
  expire()
  -- On a second attempt the entry is there already. The step before it is settled, and may have left the window since.
  if not redis.call('ZSCORE', times, entry) then
    if not settle(before, used) and now - before_at < WINDOW then
      return { 'lost' }
    end
  end
  return admit(entry, tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
end

if operation == 'settle' then
  settle(entry, tonumber(ARGV[3]))
  return { 'done' }
end

if operation == 'cancel' then
  local value = redis.call('HGET', counts, entry)
  if value and not is_buried(value) then
    local tokens, requests, block = weigh(entry, value)
    redis.call('ZREM', times, entry)
    redis.call('HDEL', counts, entry)
    add(0 - tokens, 0 - requests, block)
  end
  return { 'done' }
end

if operation == 'bury' then
  -- An attempt to admit the entry that timed out may still arrive later; the tombstone stops it.
  expire()
  local value = redis.call('HGET', counts, entry)
  local tokens, requests, block = weigh(entry, value)
  if not value then
    block = math.floor((redis.call('HGET', counts, '#s') or 0) / BLOCK)
    redis.call('ZADD', times, now, entry)
  end
  redis.call('HSET', counts, entry, BURIED .. ':' .. block)
  add(0 - tokens, 0 - requests, block)
  keep(times, counts)
  return { 'done' }
end

return redis.error_reply('ERR no such operation: ' .. operation)
