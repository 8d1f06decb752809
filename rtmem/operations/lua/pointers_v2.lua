#!lua name=rtmem_v2_pointers

--[[ Pointers of one principal. Every function is one atomic step.

KEYS  1  h  hash  what is known, see below
      2  p  zset  pins, score 0, read by the order of their bytes:  t<thread>NUL<id>  and  u<id>NUL<holder>,
                  where a holder is t<thread>, or m for a pin by hand
      3  d  zset  what is due, by Unix time in ms:  x<id> a pointer's own end   y<id> the end of a tombstone
                  q<thread> look whether this thread still lives   k<id> an upload is late
      4  l  zset  <created, 13 digits><id>, score 0: every pointer, oldest first
      5     what the keys of chunks begin with. Chunk n of what pointer <id> brought is a string <prefix><id>:<n>.

Which chunks a pointer has is known only in here, so their keys cannot be declared; they carry the hash tag of those
that are, and Redis itself refuses a function the keys of another slot.

Fields of h
  v           version of this layout
  r<id>       record of a pointer: created, expires (0: never), doubles; 32 bytes of key; the manifest of its value; then
              what only Python reads. All that reading needs: it takes plain commands and no function.
  o<id>       tombstone of a pointer whose time was over
  b<key>      manifest of a value: one letter ("r" raw, "z" zstd), the 29 characters of the id that its chunks lie
              under, bytes stored and number of chunks, doubles; then for each chunk where it ends, four doubles:
              in bytes, characters, line ends, items; then for each chunk a checksum, 16 bytes
  n<key>      how many pointers lead to it: equal values of one principal are stored once
  k<id>       an upload under way: "<chunks> <bytes>"
  bytes, values, uploading   sums over the above

A value above one batch is written in several: `begin` claims room for it, SETs bring the chunks, `settle` keeps those
of a batch, `commit` makes all of it visible. Chunks come with a time to live, which is taken away where a claim or a
pointer names them. So nothing that is broken off stays: `sweep` frees what a late claim names, and Redis itself the
rest. However large the value, no step holds the server for long.
]]

local LAYOUT = 1
local ID_BYTES = 29
local RECORD = 48           -- bytes before the manifest: 2 * 8 + 32
local MANIFEST = 46         -- bytes of a manifest before its chunks: 1 + 29 + 2 * 8
local CHUNK = 48            -- bytes of a manifest for each chunk: 4 * 8 + 16
local LIST_LOOKED_MAX = 1000
local FREED_MAX = 1000      -- chunks that one step of a sweep or release may free
local UNLINKED_AT_ONCE = 100

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function whole(number) return string.format('%.0f', number) end

local function check_version(version)
  if version and tonumber(version) > LAYOUT then
    error({err = 'RTMEM_LAYOUT pointers are stored in layout ' .. version .. ', this library knows up to ' .. LAYOUT})
  end
end

local function check_layout(h) check_version(redis.call('HGET', h, 'v')) end

local function open_record(raw)
  local created, expires = struct.unpack('<dd', raw)
  return {created = created, expires = expires, key = raw:sub(17, RECORD), raw = raw}
end

-- The manifest that begins behind the first `skip` bytes of raw.
local function open_manifest(raw, skip)
  local at = skip or 0
  local stored, chunks = struct.unpack('<dd', raw, at + 31)
  return {host = raw:sub(at + 2, at + 30), stored = stored, chunks = chunks, bytes = MANIFEST + CHUNK * chunks}
end

local function chunk_key(keys, host, number) return keys[5] .. host .. ':' .. number end

local function is_pinned(keys, id)
  return #redis.call('ZRANGEBYLEX', keys[2], '[u' .. id .. '\0', '(u' .. id .. '\1', 'LIMIT', 0, 1) > 0
end

local function is_alive(keys, id, record, now)
  return record.expires > now or is_pinned(keys, id)
end

-- The record of a living pointer; else nil and whether it has expired.
local function find(keys, id, now)
  local found = redis.call('HMGET', keys[1], 'v', 'r' .. id, 'o' .. id)
  check_version(found[1])
  if not found[2] then return nil, found[3] and true end
  local record = open_record(found[2])
  if not is_alive(keys, id, record, now) then return nil, true end
  return record
end

local function add_to(keys, field, number)
  if number ~= 0 then redis.call('HINCRBY', keys[1], field, whole(number)) end
end

local function sum_of(keys, field) return tonumber(redis.call('HGET', keys[1], field) or '0') end

local function free_chunks(keys, host, chunks)
  for first = 0, chunks - 1, UNLINKED_AT_ONCE do
    local names = {}
    for number = first, math.min(first + UNLINKED_AT_ONCE, chunks) - 1 do
      names[#names + 1] = chunk_key(keys, host, number)
    end
    redis.call('UNLINK', unpack(names))
  end
  return chunks
end

-- The chunks from `first` up to `stop` came just now, and shall stay. False if they are not there.
local function keep_chunks(keys, host, first, stop)
  for number = first, stop - 1 do
    if redis.call('PERSIST', chunk_key(keys, host, number)) == 0 then return false end
  end
  return true
end

local function drop_claim(keys, id)
  local claim = redis.call('HGET', keys[1], 'k' .. id)
  if not claim then return nil end
  local chunks, bytes = claim:match('^(%d+) (%d+)$')
  redis.call('HDEL', keys[1], 'k' .. id)
  redis.call('ZREM', keys[3], 'k' .. id)
  add_to(keys, 'uploading', -tonumber(bytes))
  return tonumber(chunks), tonumber(bytes)
end

local function add_pin(keys, id, holder, due)
  local pin = 'u' .. id .. '\0' .. holder
  if holder:sub(1, 1) == 't' then
    redis.call('ZADD', keys[2], 0, pin, 0, holder .. '\0' .. id)
    redis.call('ZADD', keys[3], whole(due), 'q' .. holder:sub(2))
  else
    redis.call('ZADD', keys[2], 0, pin)
  end
end

local function remove_pin(keys, id, holder)
  redis.call('ZREM', keys[2], 'u' .. id .. '\0' .. holder, holder .. '\0' .. id)
end

-- Take a pointer out, and its value with the last one that led to it. Replies how many chunks that freed.
local function take_out(keys, id, record, now, tombstone_ttl_ms)
  local h, freed = keys[1], 0
  for _, pin in ipairs(redis.call('ZRANGEBYLEX', keys[2], '[u' .. id .. '\0', '(u' .. id .. '\1')) do
    remove_pin(keys, id, pin:sub(ID_BYTES + 3))
  end
  redis.call('HDEL', h, 'r' .. id)
  redis.call('ZREM', keys[3], 'x' .. id)
  redis.call('ZREM', keys[4], string.format('%013.0f', record.created) .. id)
  local bytes = #record.raw
  if redis.call('HINCRBY', h, 'n' .. record.key, -1) <= 0 then
    local m = open_manifest(record.raw, RECORD)
    freed = free_chunks(keys, m.host, m.chunks)
    bytes = bytes + m.bytes + m.stored
    redis.call('HDEL', h, 'b' .. record.key, 'n' .. record.key)
    add_to(keys, 'values', -1)
  end
  add_to(keys, 'bytes', -bytes)
  if tombstone_ttl_ms then
    redis.call('HSET', h, 'o' .. id, whole(now))
    redis.call('ZADD', keys[3], whole(now + tombstone_ttl_ms), 'y' .. id)
  end
  return freed
end

-- Writing -------------------------------------------------------------------

-- Before a value above one batch is sent.
-- ARGV  1 id  2 key  3 chunks  4 bytes  5 quota or 0  6 how long it may take, in ms
-- Replies  {'have'} an equal value is there: only link to it   {'go'}   {'quota', bytes in use}
local function begin(keys, argv)
  local h, id = keys[1], argv[1]
  check_layout(h)
  if redis.call('HEXISTS', h, 'b' .. argv[2]) == 1 then return {'have'} end
  if redis.call('HEXISTS', h, 'k' .. id) == 1 then return {'go'} end -- sent again after a lost connection
  local used = sum_of(keys, 'bytes') + sum_of(keys, 'uploading')
  if argv[5] ~= '0' and used + tonumber(argv[4]) > tonumber(argv[5]) then return {'quota', used} end
  redis.call('HSET', h, 'v', LAYOUT, 'k' .. id, argv[3] .. ' ' .. argv[4])
  redis.call('ZADD', keys[3], whole(now_ms() + tonumber(argv[6])), 'k' .. id)
  add_to(keys, 'uploading', tonumber(argv[4]))
  return {'go'}
end

-- Make a value and the pointer to it visible.
-- ARGV  1 'new' its chunks came with this transaction, 'claimed' they came after `begin`, 'link' they are there
--       2 id  3 key  4 what only Python reads  5 ttl_ms or 0  6 holder or ''  7 grace_ms  8 quota or 0
--       9 manifest, '' to link  10 the first of the chunks that came with this transaction
-- Replies  {'ok', created, expires}   {'quota', bytes in use}
--          {'late'} there is nothing to link to (any more): send everything again
local function commit(keys, argv)
  local call, h, mode, id, key = redis.call, keys[1], argv[1], argv[2], argv[3]
  -- One read and one write of the hash: each call from Lua costs a microsecond or two, or four where others keep the
  -- processor's caches for themselves. So numbers go to Redis as they are, it writes them faster than string.format.
  local found = call('HMGET', h, 'v', 'b' .. key, 'r' .. id, 'k' .. id, 'n' .. key, 'bytes', 'uploading', 'values')
  check_version(found[1])
  local there, own_raw, claim = found[2], found[3], found[4]
  local mine = argv[9] ~= '' and open_manifest(argv[9])
  local function refuse(reply)
    if mine then free_chunks(keys, id, mine.chunks) end
    drop_claim(keys, id)
    return reply
  end
  if own_raw then
    -- Sent again after a lost connection. The chunks came again too, and are waste if another's serve.
    local own = open_record(own_raw)
    local serves = mine and there and open_manifest(there).host == id
    if mine and not serves then free_chunks(keys, id, mine.chunks) end
    if serves then keep_chunks(keys, id, tonumber(argv[10]), mine.chunks) end
    return {'ok', own.created, own.expires}
  end
  if not there and (not mine or (mode == 'claimed' and not claim)) then return refuse({'late'}) end
  local now = now_ms()
  local expires = argv[5] ~= '0' and now + tonumber(argv[5]) or 0
  local raw = struct.pack('<dd', now, expires) .. key .. (there or argv[9]) .. argv[4]
  local bytes, used = #raw, tonumber(found[6] or '0')
  if not there then bytes = bytes + mine.stored + mine.bytes end
  local promised = tonumber(found[7] or '0') - (claim and tonumber(claim:match('%d+$')) or 0)
  if argv[8] ~= '0' and used + promised + bytes > tonumber(argv[8]) then
    return refuse({'quota', used + promised})
  end
  local links = tonumber(found[5] or '0') + 1
  if not there then
    if not keep_chunks(keys, id, tonumber(argv[10]), mine.chunks) then return refuse({'late'}) end
    call('HSET', h, 'v', LAYOUT, 'b' .. key, argv[9], 'r' .. id, raw, 'n' .. key, links, 'bytes', used + bytes,
      'values', tonumber(found[8] or '0') + 1)
  else
    if mine then free_chunks(keys, id, mine.chunks) end
    call('HSET', h, 'r' .. id, raw, 'n' .. key, links, 'bytes', used + bytes)
  end
  if claim then drop_claim(keys, id) end
  call('ZADD', keys[4], 0, string.format('%013.0f', now) .. id)
  if expires > 0 then call('ZADD', keys[3], expires, 'x' .. id) end
  if argv[6] ~= '' then add_pin(keys, id, argv[6], now + tonumber(argv[7])) end
  return {'ok', now, expires}
end

-- An upload that will not be finished.  ARGV  1 id
local function abandon(keys, argv)
  local chunks = drop_claim(keys, argv[1])
  return chunks and free_chunks(keys, argv[1], chunks) or 0
end

-- Keep what a batch brought, so that `commit` need not do it for all of them at once.
-- ARGV  1 id  2 the first of its chunks  3 the one behind the last   Replies  1, 0 given up meanwhile: begin anew
local function settle(keys, argv)
  local found = redis.call('HMGET', keys[1], 'k' .. argv[1], 'r' .. argv[1])
  -- There is a pointer already if this comes once more after a lost connection.
  if not found[1] and not found[2] then return 0 end
  if keep_chunks(keys, argv[1], tonumber(argv[2]), tonumber(argv[3])) then return 1 end
  abandon(keys, argv)
  return 0
end

-- Reading -------------------------------------------------------------------

-- ARGV  1 'all', newest first, or 'thread', by id   2 thread   3 where to go on, or ''   4 how many
-- Replies  {where to go on or '', id, record without manifest, id, record without manifest, ...}
local function list(keys, argv)
  check_layout(keys[1])
  local now, page, members = now_ms(), {''}, nil
  if argv[1] == 'thread' then
    local first = 't' .. argv[2] .. '\0'
    members = redis.call('ZRANGEBYLEX', keys[2], argv[3] ~= '' and '(' .. first .. argv[3] or '[' .. first .. 'mp_',
      '(t' .. argv[2] .. '\1', 'LIMIT', 0, LIST_LOOKED_MAX)
  else
    local newest = argv[3] ~= '' and '(' .. argv[3] or '+'
    members = redis.call('ZREVRANGEBYLEX', keys[4], newest, '-', 'LIMIT', 0, LIST_LOOKED_MAX)
  end
  for at, member in ipairs(members) do
    local id = member:sub(-ID_BYTES)
    local record = find(keys, id, now)
    -- mc_ are values that a saver has moved out of a thread: nobody can do anything with such an id.
    if record and id:sub(1, 3) == 'mp_' then
      local told = record.raw:sub(RECORD + open_manifest(record.raw, RECORD).bytes + 1)
      page[#page + 1], page[#page + 2] = id, record.raw:sub(1, RECORD) .. told
    end
    if (#page - 1) / 2 >= tonumber(argv[4]) or at == LIST_LOOKED_MAX then
      if at < #members or at == LIST_LOOKED_MAX then page[1] = argv[1] == 'thread' and id or member end
      break
    end
  end
  return page
end

-- Living and ending ---------------------------------------------------------

-- ARGV  1 id  2 holder  3 grace_ms   Replies  1, 0 no such pointer, -1 expired
local function pin(keys, argv)
  local now = now_ms()
  local record, expired = find(keys, argv[1], now)
  if not record then return expired and -1 or 0 end
  add_pin(keys, argv[1], argv[2], now + tonumber(argv[3]))
  return 1
end

-- ARGV  1 id  2 holder  3 ttl_ms of a tombstone   Replies as pin
local function unpin(keys, argv)
  local now, id = now_ms(), argv[1]
  local record, expired = find(keys, id, now)
  if not record then return expired and -1 or 0 end
  remove_pin(keys, id, argv[2])
  if not is_alive(keys, id, record, now) then take_out(keys, id, record, now, tonumber(argv[3])) end
  return 1
end

-- ARGV  1 id   Replies 1, or 0 if there was none
local function delete(keys, argv)
  check_layout(keys[1])
  local raw = redis.call('HGET', keys[1], 'r' .. argv[1])
  if not raw then return 0 end
  local now = now_ms()
  local record = open_record(raw)
  local alive = is_alive(keys, argv[1], record, now)
  take_out(keys, argv[1], record, now)
  return alive and 1 or 0
end

-- A thread is gone: so are its pins, and what nothing else keeps.
-- ARGV  1 thread  2 how many pins at most  3 ttl_ms of tombstones  4 the time it was due at, or '': whatever it is
--       5 when it was gone: pointers that are younger belong to a thread that has begun anew  6 where to go on, or ''
-- Replies  where to go on, or ''
local function release(keys, argv)
  check_layout(keys[1])
  local now, due = now_ms(), 'q' .. argv[1]
  -- Pinned again while somebody looked whether the thread lives.
  if argv[4] ~= '' and redis.call('ZSCORE', keys[3], due) ~= argv[4] then return '' end
  local first, last, freed = 't' .. argv[1] .. '\0', '(t' .. argv[1] .. '\1', 0
  local start = (argv[6] == '' and '[' or '(') .. first .. argv[6]
  local pins = redis.call('ZRANGEBYLEX', keys[2], start, last, 'LIMIT', 0, argv[2])
  for at, member in ipairs(pins) do
    local id = member:sub(-ID_BYTES)
    local raw = redis.call('HGET', keys[1], 'r' .. id)
    local record = raw and open_record(raw)
    local is_younger = record and record.created > tonumber(argv[5])
    if not is_younger then remove_pin(keys, id, 't' .. argv[1]) end
    if record and not is_younger then
      local tombstone_ttl_ms = id:sub(1, 3) == 'mp_' and tonumber(argv[3]) or nil
      if not is_alive(keys, id, record, now) then freed = freed + take_out(keys, id, record, now, tombstone_ttl_ms) end
    end
    -- Whatever becomes of the caller: the thread stays due, and a sweep goes on.
    if at < #pins and freed >= FREED_MAX then return id end
  end
  if #pins == tonumber(argv[2]) then return pins[#pins]:sub(-ID_BYTES) end
  if #redis.call('ZRANGEBYLEX', keys[2], '[' .. first, last, 'LIMIT', 0, 1) == 0 then redis.call('ZREM', keys[3], due) end
  return ''
end

-- A thread lives: look again later.  ARGV  1 thread  2 the time it was due at  3 in how many ms
local function keep(keys, argv)
  if redis.call('ZSCORE', keys[3], 'q' .. argv[1]) ~= argv[2] then return 0 end
  local pins = redis.call('ZRANGEBYLEX', keys[2], '[t' .. argv[1] .. '\0', '(t' .. argv[1] .. '\1', 'LIMIT', 0, 1)
  if #pins == 0 then return redis.call('ZREM', keys[3], 'q' .. argv[1]) end
  return redis.call('ZADD', keys[3], whole(now_ms() + tonumber(argv[3])), 'q' .. argv[1])
end

-- What a thread pins, its copy pins too.
-- ARGV  1 thread  2 its copy  3 where to go on, or ''  4 how many  5 grace_ms   Replies where to go on, or ''
local function copy_pins(keys, argv)
  check_layout(keys[1])
  local now, first = now_ms(), 't' .. argv[1] .. '\0'
  local pins = redis.call('ZRANGEBYLEX', keys[2], argv[3] ~= '' and '(' .. first .. argv[3] or '[' .. first,
    '(t' .. argv[1] .. '\1', 'LIMIT', 0, argv[4])
  for _, member in ipairs(pins) do
    local id = member:sub(-ID_BYTES)
    -- What a saver has moved out of a thread gets a clone for its copy.
    if id:sub(1, 3) == 'mp_' then add_pin(keys, id, 't' .. argv[2], now + tonumber(argv[5])) end
  end
  return #pins < tonumber(argv[4]) and '' or pins[#pins]:sub(-ID_BYTES)
end

-- A thread lives, and does not refer to what these pins of its saver are for.
-- ARGV  1 thread  2 the time it was due at  then ids   Replies how many pins ended; the others wait for the next sweep
local function drop(keys, argv)
  check_layout(keys[1])
  -- Pinned again while somebody looked.
  if redis.call('ZSCORE', keys[3], 'q' .. argv[1]) ~= argv[2] then return 0 end
  local now, freed = now_ms(), 0
  for at = 3, #argv do
    remove_pin(keys, argv[at], 't' .. argv[1])
    local raw = redis.call('HGET', keys[1], 'r' .. argv[at])
    local record = raw and open_record(raw)
    if record and not is_alive(keys, argv[at], record, now) then
      freed = freed + take_out(keys, argv[at], record, now)
    end
    if freed >= FREED_MAX then return at - 2 end
  end
  return #argv - 2
end

-- Another pointer to the value of a living one, for the copy of a thread.
-- ARGV  1 id  2 the other's id  3 holder  4 grace_ms   Replies  1, 0 no such pointer
local function clone(keys, argv)
  local now, h, other = now_ms(), keys[1], argv[2]
  if redis.call('HEXISTS', h, 'r' .. other) == 1 then return 1 end -- sent again after a lost connection
  local record = find(keys, argv[1], now)
  if not record or redis.call('HEXISTS', h, 'b' .. record.key) == 0 then return 0 end
  local raw = struct.pack('<dd', now, 0) .. record.raw:sub(17)
  redis.call('HSET', h, 'r' .. other, raw)
  redis.call('HINCRBY', h, 'n' .. record.key, 1)
  add_to(keys, 'bytes', #raw)
  redis.call('ZADD', keys[4], 0, string.format('%013.0f', now) .. other)
  add_pin(keys, other, argv[3], now + tonumber(argv[4]))
  return 1
end

-- One step of what is due.
-- ARGV  1 how many  2 ttl_ms of tombstones
-- Replies  {pointers expired, uploads given up, 1 if there is more, the time, thread, due, thread, due, ...}: threads to
--          look at
local function sweep(keys, argv)
  check_layout(keys[1])
  local now, most, freed = now_ms(), tonumber(argv[1]), 0
  local due = redis.call('ZRANGEBYSCORE', keys[3], '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, most)
  local reply = {0, 0, #due / 2 == most and 1 or 0, whole(now)}
  for at = 1, #due, 2 do
    local kind, name = due[at]:sub(1, 1), due[at]:sub(2)
    if kind == 'x' then
      local raw = redis.call('HGET', keys[1], 'r' .. name)
      local record = raw and open_record(raw)
      if record and not is_alive(keys, name, record, now) then
        freed = freed + take_out(keys, name, record, now, tonumber(argv[2]))
        reply[1] = reply[1] + 1
      else
        redis.call('ZREM', keys[3], due[at]) -- pinned: it lives on, without an end of its own
      end
    elseif kind == 'y' then
      redis.call('HDEL', keys[1], 'o' .. name)
      redis.call('ZREM', keys[3], due[at])
    elseif kind == 'k' then
      local chunks = drop_claim(keys, name)
      if chunks then
        freed = freed + free_chunks(keys, name, chunks)
        reply[2] = reply[2] + 1
      else
        redis.call('ZREM', keys[3], due[at])
      end
    else
      reply[#reply + 1], reply[#reply + 2] = name, due[at + 1]
    end
    if freed >= FREED_MAX then
      reply[3] = 1
      break
    end
  end
  return reply
end

redis.register_function{function_name = 'rtmem_v2_pointers_list', callback = list, flags = {'no-writes'}}
redis.register_function('rtmem_v2_pointers_begin', begin)
redis.register_function('rtmem_v2_pointers_settle', settle)
redis.register_function('rtmem_v2_pointers_commit', commit)
redis.register_function('rtmem_v2_pointers_pin', pin)
redis.register_function('rtmem_v2_pointers_copy_pins', copy_pins)
redis.register_function('rtmem_v2_pointers_clone', clone)
-- Freeing must work when Redis is full.
redis.register_function{function_name = 'rtmem_v2_pointers_abandon', callback = abandon, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_pointers_unpin', callback = unpin, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_pointers_delete', callback = delete, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_pointers_release', callback = release, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_pointers_drop', callback = drop, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_pointers_keep', callback = keep, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v2_pointers_sweep', callback = sweep, flags = {'allow-oom'}}
