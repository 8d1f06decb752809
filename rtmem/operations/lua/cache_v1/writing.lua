-- Writing: an entry, what is known of its use, what was reported of it.

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

-- Give entries the vectors that they lack.
-- ARGV 1 name of the field  then id, prompt, vector, ...   Replies how many got one
local function mend(keys, argv)
  local entries, books, mended = keys[1], keys[2], 0
  for n = 2, #argv, 3 do
    local id, vector = argv[n], argv[n + 2]
    local record = record_of(books, id)
    -- Another text may be stored there by now.
    if record and redis.call('HGET', entries .. id, 'prompt') == argv[n + 1]
      and redis.call('HSETNX', entries .. id, argv[1], vector) == 1 then
      record[1] = record[1] + #vector
      redis.call('HSET', books .. 'records', id, cmsgpack.pack(record))
      redis.call('HINCRBY', books .. 'totals', 'bytes', #vector)
      mended = mended + 1
    end
  end
  return mended
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

redis.register_function('rtmem_v1_cache_put', put)
redis.register_function('rtmem_v1_cache_mend', mend)
-- Freeing, and reading, must work when Redis is full.
redis.register_function{function_name = 'rtmem_v1_cache_used', callback = used, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_report', callback = report, flags = {'allow-oom'}}
