#!lua name=rtmem_v1_transfer

-- Memory as it is stored, out of one Redis and into another. memories_v1.lua and facts_v1.lua have the layout.
--
-- KEYS of every function  1 rtmem:memory  2 what the keys of all memories begin with

local function vectors_of(key, field, u)
  local vectors = {redis.call('HGET', key, field) or nil}
  for n = 1, #vectors > 0 and tonumber((u or ''):match('%d+$') or '0') or 0 do
    vectors[#vectors + 1] = redis.call('HGET', key .. ':' .. n, field) or nil
  end
  return vectors
end

-- Of a part of all memories, those of some owners.
-- ARGV 1 cursor  2 about how many to look at  3 '1' with vectors  then what stands in `scope` for each owner
-- Replies {cursor, {key, when it ends (ms) or -1, {field, value, ...}, {vector, ...}}, ...}
local function page(keys, argv)
  local owners = {}
  for n = 4, #argv do owners[argv[n]] = true end
  local field = 'vector_' .. (redis.call('HGET', keys[1], 'fingerprint') or '')
  local pattern = keys[2]:gsub('[*?%[%]\\^]', '\\%0') .. '*'
  local found = redis.call('SCAN', argv[1], 'MATCH', pattern, 'COUNT', argv[2], 'TYPE', 'hash')
  local reply = {found[1]}
  for _, key in ipairs(found[2]) do
    local of = key:sub(-1) == '}' and redis.call('HMGET', key, 'scope', 'owner', 'u') or {}
    if owners[((of[1] or of[2] or ''):match('^[^\31]*'))] then
      local fields, all = {}, redis.call('HGETALL', key)
      for n = 1, #all, 2 do
        if all[n]:sub(1, 7) ~= 'vector_' then fields[#fields + 1], fields[#fields + 2] = all[n], all[n + 1] end
      end
      reply[#reply + 1] = {key, redis.call('PEXPIRETIME', key), fields,
        argv[3] == '1' and vectors_of(key, field, of[3]) or {}}
    end
  end
  return reply
end

-- HSET of {name, value, ...}; Lua cannot pass on more than some 8,000 arguments.
local function set_fields(key, fields)
  for n = 1, #fields, 4000 do redis.call('HSET', key, unpack(fields, n, math.min(n + 3999, #fields))) end
end

-- Write a memory as it was, if nothing is under its key.
-- ARGV 1 key  2 when it ends (ms) or -1  3 vector field  4 fingerprint  5 dims  6 how many vectors, vectors...
--      then how many of the following strings, name, value...: what side documents carry too
--      then name, value...: what only the item carries
-- Replies 'restored', 'there': the same, 'other': something else, 'over': its time has come meanwhile
local function restore(keys, argv)
  local key, ends_ms, count = argv[1], tonumber(argv[2]), tonumber(argv[6])
  local at = 7 + count
  local common_end = at + tonumber(argv[at])
  local common, fields = {}, {}
  for n = at + 1, common_end do common[#common + 1] = argv[n] end
  for n = at + 1, #argv do fields[#fields + 1] = argv[n] end
  if redis.call('EXISTS', key) == 1 then
    for n = 1, #fields, 2 do
      -- Whether there is a vector, and when it was last read, is not what makes it another memory.
      if fields[n] ~= 'mark' and fields[n] ~= 'u' and redis.call('HGET', key, fields[n]) ~= fields[n + 1] then
        return 'other'
      end
    end
    return 'there'
  end
  local now = redis.call('TIME')
  if ends_ms >= 0 and ends_ms <= now[1] * 1000 + math.floor(now[2] / 1000) then return 'over' end
  if count > 0 then
    local meta = redis.call('HMGET', keys[1], 'fingerprint', 'next_fingerprint')
    if not meta[1] then redis.call('HSET', keys[1], 'fingerprint', argv[4], 'dims', argv[5]) end
    if meta[1] and meta[1] ~= argv[4] then
      error({err = 'RTMEM_EMBEDDER this memory holds vectors of embedder ' .. meta[1] .. ', not of ' .. argv[4]})
    end
    if meta[2] and meta[2] ~= argv[4] then redis.call('SADD', keys[1] .. ':again', key) end
    fields[#fields + 1], fields[#fields + 2] = argv[3], argv[7]
  end
  set_fields(key, fields)
  for n = 2, count do
    set_fields(key .. ':' .. n - 1, {argv[3], argv[6 + n], 'mark', 'side'})
    set_fields(key .. ':' .. n - 1, common)
  end
  if ends_ms >= 0 then
    redis.call('PEXPIREAT', key, argv[2])
    for n = 2, count do redis.call('PEXPIREAT', key .. ':' .. n - 1, argv[2]) end
  end
  return 'restored'
end

redis.register_function{function_name = 'rtmem_v1_transfer_page', callback = page, flags = {'no-writes'}}
redis.register_function('rtmem_v1_transfer_restore', restore)
