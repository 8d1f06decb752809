#!lua name=rtmem_v1_cache

-- Cached answers of language models. All keys of a tenant share a hash tag.
--
--   HASH  rtmem:c:e:{<tenant>}:<id>   an entry; it ends with its key. The query engine indexes it (cache_index.py)
--     prompt, answer, created (us), took (ms), tags (msgpack), model
--     scope                 TAG: a hash of all that must be the same for a hit
--     vector_<fingerprint>  VECTOR of the prompt
--     threshold             distance, where somebody reported a wrong hit
--   What changes with a hit is not here: any HSET of an indexed hash inserts its vector anew.
--
--   rtmem:c:t:{<tenant>}:
--     records   HASH  id -> msgpack {bytes, took, hits, ttl_ms, {link, link...}}; outlives its entry until it is swept
--     values    ZSET  id by value, GreedyDual-Size-Frequency: inflation + (hits + 1) * took / bytes
--     created   ZSET  id by microsecond
--     expires   ZSET  id by millisecond; what never ends is not in it
--     links     ZSET  all of score 0: 's:<scope>:<id>', 'm:<model>:<id>', 'g:<tag>:<id>'
--     floors    ZSET  what was invalidated by microsecond: '*', 'e:<id>', 's:<scope>', 'm:<model>', 'g:<tag>'
--     totals    HASH  bytes, inflation, hits, saved_ms, evicted, wrong, right; how look-ups ended: '=exact', '=miss' ...
--     lease:<id>  STRING  who computes the answer for the moment
--     wake:<id>   STREAM  that the computing has ended, for those who wait

local ROW = {'answer', 'created', 'took', 'tags'}

local function now_us()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

local function text(number)
  return string.format('%.0f', number)
end

-- Whether no field from `first` on is missing: the index may name an entry whose time is over.
local function is_whole(row, first)
  for n = first, first + #ROW - 1 do
    if not row[n] then return false end
  end
  return true
end

local function record_of(books, id)
  local packed = redis.call('HGET', books .. 'records', id)
  return packed and cmsgpack.unpack(packed)
end

local function value_of(books, bytes, took, hits)
  local inflation = tonumber(redis.call('HGET', books .. 'totals', 'inflation') or 0)
  return inflation + (hits + 1) * math.max(took, 1) / bytes
end

-- Remove an entry and all that is known of it. Replies how often it was hit, or nil if nothing was known.
local function forget(entries, books, id)
  redis.call('DEL', entries .. id)
  local record = record_of(books, id)
  for _, name in ipairs({'values', 'created', 'expires'}) do redis.call('ZREM', books .. name, id) end
  if not record then return nil end
  for _, link in ipairs(record[5]) do redis.call('ZREM', books .. 'links', link .. ':' .. id) end
  redis.call('HDEL', books .. 'records', id)
  redis.call('HINCRBY', books .. 'totals', 'bytes', -record[1])
  return record[3]
end

-- What has expired leaves its records behind.
local function sweep(entries, books, now_ms, most)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', books .. 'expires', '-inf', text(now_ms), 'LIMIT', 0, most)) do
    forget(entries, books, id)
  end
end

local function note_expiry(books, id, ttl_ms, now_ms)
  if ttl_ms > 0 then
    redis.call('ZADD', books .. 'expires', text(now_ms + ttl_ms), id)
  else
    redis.call('ZREM', books .. 'expires', id)
  end
end

-- argv from `at` on: id, hits, saved ms, ...; or '=exact' and the like in the place of an id, how often, 0
local function count_hits(books, argv, at, till)
  for n = at, till, 3 do
    local id, hits = argv[n], tonumber(argv[n + 1])
    if id:sub(1, 1) == '=' then
      redis.call('HINCRBY', books .. 'totals', id, hits)
    else
      local record = record_of(books, id)
      if record then
        record[3] = record[3] + hits
        redis.call('HSET', books .. 'records', id, cmsgpack.pack(record))
        redis.call('ZADD', books .. 'values', 'XX', value_of(books, record[1], record[2], record[3]), id)
      end
      redis.call('HINCRBY', books .. 'totals', 'hits', hits)
      redis.call('HINCRBY', books .. 'totals', 'saved_ms', argv[n + 2])
    end
  end
end

-- Make room, but not at the cost of `kept`. A few at a time, so that a limit that was lowered stops nobody.
local function evict(entries, books, kept, entries_max, bytes_max)
  for _ = 1, 64 do
    local count = redis.call('ZCARD', books .. 'values')
    local bytes = tonumber(redis.call('HGET', books .. 'totals', 'bytes') or 0)
    if count <= entries_max and bytes <= bytes_max then return end
    local least = redis.call('ZRANGE', books .. 'values', 0, 1, 'WITHSCORES')
    local at = least[1] == kept and 3 or 1
    if not least[at] then return end
    redis.call('HSET', books .. 'totals', 'inflation', least[at + 1])
    redis.call('HINCRBY', books .. 'totals', 'evicted', 1)
    forget(entries, books, least[at])
  end
end

-- Leases ----------------------------------------------------------------------

-- Give a lease back, if it is still one's own, and tell those who wait how it ended.
local function give_back(books, id, token, verdict)
  if redis.call('GET', books .. 'lease:' .. id) ~= token then return 0 end
  redis.call('DEL', books .. 'lease:' .. id)
  -- Only where somebody waits: it made the stream.
  redis.call('XADD', books .. 'wake:' .. id, 'NOMKSTREAM', 'MAXLEN', 1, '*', 'verdict', verdict)
  return 1
end

-- KEYS of all: 1 what keys of entries begin with  2 what all others begin with
-- ARGV 1 id  2 token  3 lease_ms
-- Replies {'hit', answer, created, took, tags} or {'held', now us} or {'wait', ms the lease lasts, last id of wake}
local function acquire(keys, argv)
  local books, id, lease_ms = keys[2], argv[1], tonumber(argv[3])
  local row = redis.call('HMGET', keys[1] .. id, unpack(ROW))
  if is_whole(row, 1) then return {'hit', unpack(row)} end
  if redis.call('SET', books .. 'lease:' .. id, argv[2], 'NX', 'PX', lease_ms) then
    return {'held', text(now_us())}
  end
  local wake = books .. 'wake:' .. id
  local last = redis.call('XREVRANGE', wake, '+', '-', 'COUNT', 1)[1]
  last = last and last[1] or redis.call('XADD', wake, '*', 'verdict', 'waiting')
  redis.call('PEXPIRE', wake, 10 * lease_ms)
  return {'wait', redis.call('PTTL', books .. 'lease:' .. id), last}
end

-- ARGV 1 id  2 token  3 lease_ms   Replies 1, or 0 if it is somebody else's by now
local function renew(keys, argv)
  local lease = keys[2] .. 'lease:' .. argv[1]
  local holder = redis.call('GET', lease)
  if holder and holder ~= argv[2] then return 0 end
  -- It may have ended while its holder was stopped: nobody has taken it, so nobody else computes.
  redis.call('SET', lease, argv[2], 'PX', argv[3])
  return 1
end

-- ARGV 1 id  2 token  3 verdict   Replies 1, or 0 if it was not one's own
local function release(keys, argv)
  return give_back(keys[2], argv[1], argv[2], argv[3])
end

-- Writing ---------------------------------------------------------------------

-- Whether anything of an entry was invalidated at or after `began_us`.
local function is_stale(books, id, links, began_us)
  local floors = {'*', 'e:' .. id, unpack(links)}
  for _, floor_us in ipairs(redis.call('ZMSCORE', books .. 'floors', unpack(floors))) do
    if floor_us and tonumber(floor_us) >= began_us then return true end
  end
  return false
end

-- ARGV 1 id  2 when the question was asked, us; 0 if nobody knows, '' if it was not  3 how long that may be ago, us  4 ttl_ms or 0
--      5 entries_max  6 bytes_max  7 bytes  8 took_ms  9 token of a lease or ''
--      10 n  n links   then n  n hits as for count_hits   then name, value, ... of the entry
-- Replies '' if it is stored, or why not
local function put(keys, argv)
  local entries, books, id = keys[1], keys[2], argv[1]
  local began_us, ttl_ms, bytes, took = tonumber(argv[2]), tonumber(argv[4]), tonumber(argv[7]), tonumber(argv[8])
  local now, links, at = now_us(), {}, 11 + tonumber(argv[10])
  local now_ms = math.floor(now / 1000)
  for n = 11, at - 1 do links[#links + 1] = argv[n] end
  local first = at + 1 + tonumber(argv[at])
  count_hits(books, argv, at + 1, first - 1)
  sweep(entries, books, now_ms, 16)
  local why = ''
  local is_late = began_us and began_us > 0 and began_us < now - tonumber(argv[3])
  if is_late or (began_us and is_stale(books, id, links, began_us)) then
    why = 'invalidated'
  else
    -- A threshold is about the question: it holds for its next answer too.
    local threshold = redis.call('HGET', entries .. id, 'threshold')
    local hits = forget(entries, books, id) or 0
    local fields = {'created', text(now), 'took', took, unpack(argv, first)}
    if threshold then fields[#fields + 1], fields[#fields + 2] = 'threshold', threshold end
    redis.call('HSET', entries .. id, unpack(fields))
    if ttl_ms > 0 then redis.call('PEXPIRE', entries .. id, ttl_ms) end
    redis.call('HSET', books .. 'records', id, cmsgpack.pack({bytes, took, hits, ttl_ms, links}))
    redis.call('HINCRBY', books .. 'totals', 'bytes', bytes)
    redis.call('ZADD', books .. 'values', value_of(books, bytes, took, hits), id)
    redis.call('ZADD', books .. 'created', text(now), id)
    note_expiry(books, id, ttl_ms, now_ms)
    for _, link in ipairs(links) do redis.call('ZADD', books .. 'links', 0, link .. ':' .. id) end
    evict(entries, books, id, tonumber(argv[5]), tonumber(argv[6]))
  end
  if argv[9] ~= '' then give_back(books, id, argv[9], why == '' and 'stored' or 'failed') end
  return why
end

-- ARGV 1 '1' to begin ttls anew  then id, hits, saved ms, ...   Replies 1
local function used(keys, argv)
  count_hits(keys[2], argv, 2, #argv)
  if argv[1] == '1' then
    local now_ms = math.floor(now_us() / 1000)
    for n = 2, #argv, 3 do
      local record = record_of(keys[2], argv[n])
      if record and record[4] > 0 and redis.call('PEXPIRE', keys[1] .. argv[n], record[4]) == 1 then
        note_expiry(keys[2], argv[n], record[4], now_ms)
      end
    end
  end
  return 1
end

-- ARGV 1 id  2 created, as the hit had it  3 '1' if it was right  4 threshold from now on; '' to drop the entry
-- Replies 1, or 0 if there is no such entry any more
local function report(keys, argv)
  local entry, totals = keys[1] .. argv[1], keys[2] .. 'totals'
  local found = redis.call('HMGET', entry, 'created', 'threshold')
  if found[1] ~= argv[2] then return 0 end
  redis.call('HINCRBY', totals, argv[3] == '1' and 'right' or 'wrong', 1)
  if argv[3] == '1' then return 1 end
  if argv[4] == '' then
    forget(keys[1], keys[2], argv[1])
  elseif not found[2] or tonumber(found[2]) > tonumber(argv[4]) then
    redis.call('HSET', entry, 'threshold', argv[4])
  end
  return 1
end

-- Invalidation ------------------------------------------------------------------

-- Ids by a link, from member `start` on, or by age.
-- Replies ids and where to go on, or nil
local function some_of(books, link, start, cutoff_us, most)
  if link == '*' then
    local ids = redis.call('ZRANGEBYSCORE', books .. 'created', '-inf', text(cutoff_us), 'LIMIT', 0, most)
    return ids, #ids == most and '' or nil
  end
  local prefix = link .. ':'
  local from = start ~= '' and '(' .. start or '[' .. prefix
  local members = redis.call('ZRANGEBYLEX', books .. 'links', from, '(' .. link .. ';', 'LIMIT', 0, most)
  local ids = {}
  for n, member in ipairs(members) do ids[n] = member:sub(#prefix + 1) end
  return ids, #members == most and members[most] or nil
end

-- ARGV 1 what: '*', 'e:<id>' or a link  2 only what is so many us old  3 how long floors are kept, us
--      4 when this began, us; '' at first  5 where to go on; ''  6 how many at most
-- Replies {how many are gone, when it began, where to go on or nil}
local function invalidate(keys, argv)
  local entries, books, what = keys[1], keys[2], argv[1]
  local now, gone = now_us(), 0
  local began = tonumber(argv[4]) or now
  local cutoff = began - tonumber(argv[2])
  if argv[4] == '' then
    redis.call('ZADD', books .. 'floors', 'GT', text(cutoff), what)
    redis.call('ZREMRANGEBYSCORE', books .. 'floors', '-inf', '(' .. text(now - tonumber(argv[3])))
    redis.call('PEXPIRE', books .. 'floors', math.ceil(tonumber(argv[3]) / 1000))
  end
  local ids, next_start
  if what:sub(1, 2) == 'e:' then
    ids = {what:sub(3)}
  else
    ids, next_start = some_of(books, what, argv[5], cutoff, tonumber(argv[6]))
  end
  for _, id in ipairs(ids) do
    local created = tonumber(redis.call('ZSCORE', books .. 'created', id) or 0)
    if created <= cutoff then
      gone = gone + redis.call('EXISTS', entries .. id)
      forget(entries, books, id)
    end
  end
  return {gone, text(began), next_start}
end

-- Reading -------------------------------------------------------------------------

-- The nearest questions of a scope.
-- ARGV 1 distance up to which an entry is brought  2 '1' to heed thresholds of entries  3 scope
--      then the words of a query without FT.SEARCH
-- Replies {now us, {id, distance, threshold or '', prompt, answer, created, took, tags}, ...}
local function find(keys, argv)
  local reply, rows = redis.call('FT.SEARCH', unpack(argv, 4)), {text(now_us())}
  local n = 2
  while reply[n] do
    local key, found = reply[n], reply[n + 1]
    if type(found) == 'table' then
      n = n + 2
      local id, distance = key:sub(#keys[1] + 1), tonumber(found[2])
      local row = redis.call('HMGET', key, 'scope', 'threshold', 'prompt', unpack(ROW))
      local most = math.min(tonumber(argv[1]), argv[2] == '1' and tonumber(row[2] or 9) or 9)
      if row[1] == argv[3] and row[3] and is_whole(row, 4) and distance <= most and key:sub(1, #keys[1]) == keys[1] then
        rows[#rows + 1] = {id, found[2], row[2] or '', unpack(row, 3)}
      end
    else
      n = n + 1
    end
  end
  return rows
end

-- Of one entry, for people:
-- {id, prompt, model, created, took, tags, scope, threshold or '', ms left or -1, hits, bytes}
local function describe(entries, books, id)
  local row = redis.call('HMGET', entries .. id, 'prompt', 'model', 'created', 'took', 'tags', 'scope', 'threshold')
  if not row[1] then return nil end
  local record = record_of(books, id) or {0, 0, 0, 0, {}}
  row[7] = row[7] or ''
  return {id, row[1], row[2], row[3], row[4], row[5], row[6], row[7], redis.call('PTTL', entries .. id), record[3],
    record[1]}
end

-- ARGV 1 id   Replies what `describe` says and its answer, or {}
local function entry(keys, argv)
  local row = describe(keys[1], keys[2], argv[1])
  if not row then return {} end
  row[#row + 1] = redis.call('HGET', keys[1] .. argv[1], 'answer')
  return row
end

-- Entries, newest first, or in the order of their ids below a link.
-- ARGV 1 '*' or a link  2 where to go on or ''  3 how many at most
-- Replies {where to go on or '', {...}, ...}
local function list(keys, argv)
  local books, reply, ids = keys[2], {''}, {}
  if argv[1] == '*' then
    local from = argv[2] == '' and '+inf' or '(' .. argv[2]
    local found = redis.call('ZREVRANGEBYSCORE', books .. 'created', from, '-inf', 'WITHSCORES', 'LIMIT', 0, argv[3])
    for n = 1, #found, 2 do ids[#ids + 1] = found[n] end
    if #ids == tonumber(argv[3]) then reply[1] = text(tonumber(found[#found])) end
  else
    local next_start
    ids, next_start = some_of(books, argv[1], argv[2], 0, tonumber(argv[3]))
    reply[1] = next_start or ''
  end
  for _, id in ipairs(ids) do reply[#reply + 1] = describe(keys[1], books, id) end
  return reply
end

-- ARGV 1 what names of indexes begin with
-- Replies {entries, entries by the time that are over, {name, value, ...} of totals, {index, ...}}
local function stats(keys, argv)
  local books, indexes, now_ms = keys[2], {}, text(math.floor(now_us() / 1000))
  local names = redis.pcall('FT._LIST')
  for _, name in ipairs(names.err and {} or names) do
    name = type(name) == 'table' and name.ok or name
    if name:sub(1, #argv[1]) == argv[1] then indexes[#indexes + 1] = name end
  end
  return {redis.call('ZCARD', books .. 'created'), redis.call('ZCOUNT', books .. 'expires', '-inf', now_ms),
    redis.call('HGETALL', books .. 'totals'), indexes}
end

-- The index -----------------------------------------------------------------------

-- FT.INFO writes names as status replies, which Lua has as tables.
local function plain(reply)
  return type(reply) == 'table' and reply.ok or reply
end

-- Make an index if there is none.
-- ARGV 1 name  then what follows it in FT.CREATE   Replies '1' if it is whole, '0' if not yet, '' without an engine
local function setup(_, argv)
  local reply = redis.pcall('FT.INFO', argv[1])
  if reply.err and reply.err:find('Unknown Redis command') then return '' end
  if reply.err then
    redis.call('FT.CREATE', unpack(argv))
    reply = redis.call('FT.INFO', argv[1])
  end
  for n = 1, #reply, 2 do
    if plain(reply[n]) == 'indexing' then return tostring(plain(reply[n + 1])) == '0' and '1' or '0' end
  end
  return '1'
end

redis.register_function('rtmem_v1_cache_put', put)
redis.register_function{function_name = 'rtmem_v1_cache_find', callback = find, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_cache_entry', callback = entry, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_cache_list', callback = list, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_cache_stats', callback = stats, flags = {'no-writes'}}
-- Freeing, and reading, must work when Redis is full.
redis.register_function{function_name = 'rtmem_v1_cache_setup', callback = setup, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_acquire', callback = acquire, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_renew', callback = renew, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_release', callback = release, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_used', callback = used, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_report', callback = report, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_invalidate', callback = invalidate, flags = {'allow-oom'}}
