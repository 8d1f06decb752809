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
