#!lua name=rtmem_v1_facts

-- Facts: long-term memory that keeps why it changed its mind. A fact is one hash beside the items of memories_v1.lua, in
-- the same index, and of the same layout as far as both have a field: what embeds items anew embeds facts too.
--
--   HASH  rtmem:m:{<id>}     <id> = mf_<hash of owner and content>, and .<n> if it was believed before and ended
--     ns, v, ix, created, u, eq, s, mark, vector_<fingerprint>   as an item has them
--     scope       TAG: a hash of the owner: a user, a team or an application
--     tags        TAG: a hash for each tag                tg   the tags themselves, msgpack
--     importance, valid_from, valid_to   NUMERIC; ms since 1970, FOREVER for an open end; valid from .. to, without to
--     seen        'ms count': when it was last written, how often
--     digest      of a fact with a key: what it says, to tell a repetition from a change
--     ended       ms: when it was superseded or invalidated; then also
--       reason, next   why, and by which id
--     prev        ids it supersedes, separated by \31
--     n           of the first of an id only: how often it has been believed anew; the last one has the id <id>.<n>
--   What is left of a forgotten fact: owner (what scope was), gone (ms), created, n, prev, next. No index finds it.
--
-- Which keys a chain has is known only in here, so they cannot be declared. The query engine of this layout is no
-- Cluster's either.
--
-- KEYS of every function  1 rtmem:memory  2 what the keys of all memories begin with

local FOREVER = 9007199254740991
local SEPARATOR = '\31'
local READ = {'scope', 'v', 'created', 'u', 'tg', 'importance', 'valid_from', 'valid_to', 'seen', 'ended', 'reason',
  'next', 'prev', 'gone', 'mark', 'owner'}

local function whole(number) return string.format('%.0f', number) end

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function key_of(keys, id) return keys[2] .. '{' .. id .. '}' end

local function base_of(id) return id:match('^[^.]+') end

local function nth(base, n) return n <= 1 and base or base .. '.' .. n end

local function split(text)
  local found = {}
  for part in (text or ''):gmatch('[^' .. SEPARATOR .. ']+') do found[#found + 1] = part end
  return found
end

-- HSET of {name, value, ...}; Lua cannot pass on more than some 8,000 arguments.
local function set_fields(key, fields)
  for n = 1, #fields, 4000 do redis.call('HSET', key, unpack(fields, n, math.min(n + 3999, #fields))) end
end

-- As in memories_v1.lua: an embedder as people know it, and its fingerprint; that alone for data of before names were kept.
local function named(meta, fingerprint)
  local name = redis.call('HGET', meta, 'name_' .. fingerprint)
  return name and '"' .. name .. '" (' .. fingerprint .. ')' or fingerprint
end

-- As in memories_v1.lua: the first to bring vectors decides whose the index has. Replies whether the index is known to
-- be there, and of another one that is being made the fingerprint, or nil (reindex_v1.lua).
local function check_embedder(meta, fingerprint, dims)
  local found = redis.call('HMGET', meta, 'fingerprint', 'index', 'dims', 'next_fingerprint')
  if fingerprint ~= '' then
    if not found[1] then
      if dims then redis.call('HSET', meta, 'fingerprint', fingerprint, 'dims', dims) end
    elseif found[1] ~= fingerprint then
      error({err = 'RTMEM_EMBEDDER this memory holds vectors of embedder ' .. named(meta, found[1]) .. ', not of ' ..
        named(meta, fingerprint)})
    end
  end
  return found[2] and 1 or 0, found[4] and found[4] ~= fingerprint and found[4] or nil
end

-- The fact as Python reads it: its id, then READ; false where nothing is.
local function row_of(keys, id)
  local row = redis.call('HMGET', key_of(keys, id), unpack(READ))
  if not row[1] and not row[14] then return false end
  return {id, unpack(row, 1, #READ)}
end

-- What writing has to know of a fact.
local function look(keys, id)
  local found = redis.call('HMGET', key_of(keys, id), 'scope', 'valid_from', 'valid_to', 'ended', 'reason', 'next',
    'prev', 'digest')
  return found[1] and {id = id, scope = found[1], from = tonumber(found[2]), to = tonumber(found[3]), ended = found[4],
    reason = found[5], next = found[6], prev = found[7], digest = found[8] or ''} or nil
end

-- The last of those that were made under an id, or nil, and how many there were.
local function latest(keys, base)
  local n = tonumber(redis.call('HGET', key_of(keys, base), 'n') or '0')
  return n > 0 and look(keys, nth(base, n)) or nil, n
end

-- The first of an id tells how many there were, so it lasts as long as the last.
local function outlive(keys, base, id)
  if base == id then return end
  local first, left_ms = key_of(keys, base), redis.call('PTTL', key_of(keys, id))
  if left_ms == -1 then
    redis.call('PERSIST', first)
  elseif left_ms > redis.call('PTTL', first) and redis.call('PTTL', first) ~= -1 then
    redis.call('PEXPIRE', first, left_ms)
  end
end

-- Writing -------------------------------------------------------------------

-- argv from `at` on:  scope  id  digest or ''  valid_from or ''  valid_to or ''  ttl_ms or 0
--                     vector field  fingerprint  dims  vector or ''  what `mark` says without a vector
--                     n, n words: name, value, ... always set     name, value, ... set if the fact is new
local function open_draft(argv, at)
  local always_end = at + 11 + tonumber(argv[at + 11])
  local draft = {scope = argv[at], base = argv[at + 1], digest = argv[at + 2], from = tonumber(argv[at + 3]),
    to = tonumber(argv[at + 4]), ttl_ms = argv[at + 5], field = argv[at + 6], fingerprint = argv[at + 7],
    dims = argv[at + 8], vector = argv[at + 9], mark = argv[at + 10], always = {}, defaults = {}}
  for n = at + 12, always_end do draft.always[#draft.always + 1] = argv[n] end
  for n = always_end + 1, #argv do draft.defaults[#draft.defaults + 1] = argv[n] end
  return draft
end

-- Set a fact's fields. `old`: it is there, and what it has stays unless the draft says otherwise.
local function store(keys, id, draft, us, old, from, prev)
  local key, ms = key_of(keys, id), math.floor(us / 1000)
  local fields = {unpack(draft.always)}
  local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
  local count = 1
  if old then
    count = 1 + tonumber(redis.call('HGET', key, 'seen'):match('%d+$'))
  else
    set('scope', draft.scope)
    set('created', whole(us))
    for _, word in ipairs(draft.defaults) do fields[#fields + 1] = word end
  end
  set('u', whole(us) .. ' ' .. draft.ttl_ms .. ' 0')
  set('seen', whole(ms) .. ' ' .. whole(count))
  if from then set('valid_from', whole(from)) end
  if draft.to or not old then set('valid_to', whole(draft.to or FOREVER)) end
  if draft.digest ~= '' then set('digest', draft.digest) end
  if prev then set('prev', prev) end
  if draft.vector ~= '' then
    set(draft.field, draft.vector)
    if old then redis.call('HDEL', key, 'mark') end
    if draft.remade then
      redis.call('HDEL', key, 'vector_' .. draft.remade)
      redis.call('SADD', keys[1] .. ':again', key)
    end
  elseif not old then
    set('mark', draft.mark)
  end
  set_fields(key, fields)
  if draft.ttl_ms ~= '0' then redis.call('PEXPIRE', key, draft.ttl_ms) else redis.call('PERSIST', key) end
  outlive(keys, draft.base, id)
end

-- The same is believed anew, or for the first time.
local function create(keys, draft, us, n, from, prev)
  local id = nth(draft.base, n + 1)
  if n == 0 then draft.defaults[#draft.defaults + 1], draft.defaults[#draft.defaults + 2] = 'n', '1' end
  if n > 0 then redis.call('HSET', key_of(keys, draft.base), 'n', whole(n + 1)) end
  store(keys, id, draft, us, nil, from, prev)
  return id
end

local function finish(keys, old, at_ms, us, reason, next)
  local fields = {'valid_to', whole(math.min(old.to, math.max(at_ms, old.from))), 'ended', whole(math.floor(us / 1000)),
    'reason', reason}
  if next then fields[#fields + 1], fields[#fields + 2] = 'next', next end
  redis.call('HSET', key_of(keys, old.id), unpack(fields))
end

-- Replies {'ok', 1 if the index is known to be there, 1 if the fact is new, row}
local function done(keys, indexed, is_new, id) return {'ok', indexed, is_new and 1 or 0, row_of(keys, id)} end

local function is_empty(from, to) return to and from >= to end

-- Believe something.
-- ARGV  a draft
-- Replies as `done`; {'interval'} it would be valid at no time
local function write(keys, argv)
  local draft = open_draft(argv, 1)
  local indexed
  indexed, draft.remade = check_embedder(keys[1], draft.fingerprint, draft.dims)
  local us = now_us()
  local ms = math.floor(us / 1000)
  local old, n = latest(keys, draft.base)
  local from = draft.from or ms
  if old and not old.ended then
    if draft.digest ~= old.digest then -- under its key there is something else now
      from = draft.from or math.max(ms, old.from)
      if is_empty(from, draft.to) then return {'interval'} end
      local id = create(keys, draft, us, n, from, old.id)
      finish(keys, old, from, us, '', id)
      return done(keys, indexed, true, id)
    end
    if old.to > from or old.from == draft.from then
      if is_empty(draft.from or old.from, draft.to or old.to) then return {'interval'} end
      store(keys, old.id, draft, us, true, draft.from)
      return done(keys, indexed, false, old.id)
    end
    -- Its time was over before this one begins: true once, and once more.
  end
  if is_empty(from, draft.to) then return {'interval'} end
  return done(keys, indexed, true, create(keys, draft, us, n, from))
end

-- Believe something instead of something else.
-- ARGV  1 id of what is believed no more  2 why  then a draft
-- Replies as write; {'none'} there is no such fact; {'conflict', id or ''} it has ended already, superseded by this one
local function update(keys, argv)
  local draft, reason = open_draft(argv, 3), argv[2]
  local indexed
  indexed, draft.remade = check_embedder(keys[1], draft.fingerprint, draft.dims)
  local us = now_us()
  local ms = math.floor(us / 1000)
  local old = look(keys, argv[1])
  if not old or old.scope ~= draft.scope then return {'none'} end
  if old.ended then
    local next = old.next and base_of(old.next) == draft.base and look(keys, old.next)
    if next and next.digest == draft.digest and (not next.ended or old.reason == reason) then
      return done(keys, indexed, false, next.id) -- said by somebody else too, or sent again after a lost connection
    end
    return {'conflict', old.next or ''}
  end
  local there, n = latest(keys, draft.base)
  if there and there.ended then there = nil end
  if there and there.id == old.id and there.digest == draft.digest then
    if is_empty(draft.from or old.from, draft.to or old.to) then return {'interval'} end
    store(keys, old.id, draft, us, true, draft.from) -- other words for the same
    return done(keys, indexed, false, old.id)
  end
  if there and there.id ~= old.id and draft.digest ~= '' then return {'conflict', there.id} end
  local from = draft.from or math.max(ms, old.from)
  local id
  if there and there.id ~= old.id and there.to > from then
    if is_empty(draft.from or there.from, draft.to or there.to) then return {'interval'} end
    id = there.id -- already believed beside it
    store(keys, id, draft, us, true, draft.from, (there.prev and there.prev .. SEPARATOR or '') .. old.id)
  else
    if is_empty(from, draft.to) then return {'interval'} end
    id = create(keys, draft, us, n, from, old.id)
  end
  finish(keys, old, from, us, reason, id)
  return done(keys, indexed, id ~= (there and there.id), id)
end

-- argv from `at` on: n, n scopes. Replies them as a set, and where the arguments go on.
local function open_scopes(argv, at)
  local scopes, last = {}, at + tonumber(argv[at])
  for n = at + 1, last do scopes[argv[n]] = true end
  return scopes, last + 1
end

-- Believe something no more.
-- ARGV  scopes  id  why  until when, or ''
-- Replies as update
local function invalidate(keys, argv)
  local scopes, at = open_scopes(argv, 1)
  local old = look(keys, argv[at])
  if not old or not scopes[old.scope] then return {'none'} end
  if old.ended then
    if not old.next and old.reason == argv[at + 1] then return done(keys, 1, false, old.id) end
    return {'conflict', old.next or ''}
  end
  local us = now_us()
  finish(keys, old, tonumber(argv[at + 2]) or math.floor(us / 1000), us, argv[at + 1])
  return done(keys, 1, false, old.id)
end

-- Chains --------------------------------------------------------------------

-- All that led to a fact and all that came of it, in no order, `most` of them at most.
local function chain(keys, scopes, id, most)
  local found, ids, seen = {}, {id}, {[id] = true}
  local function add(other)
    if other and not seen[other] then
      seen[other] = true
      ids[#ids + 1] = other
    end
  end
  local at = 1
  while ids[at] and #found < most do
    local links = redis.call('HMGET', key_of(keys, ids[at]), 'scope', 'owner', 'next', 'prev', 'n', 'gone')
    if scopes[links[1] or links[2] or ''] then
      found[#found + 1] = ids[at]
      add(links[3])
      for _, other in ipairs(split(links[4])) do add(other) end
      add(base_of(ids[at]))
      for n = 2, tonumber(links[5] or '1') do add(nth(ids[at], n)) end
    elseif at == 1 then
      return found
    end
    at = at + 1
  end
  return found
end

-- ARGV  scopes  id  how many at most
-- Replies {row, row, ...} in no order
local function history(keys, argv)
  local scopes, at = open_scopes(argv, 1)
  local rows = {}
  for _, id in ipairs(chain(keys, scopes, argv[at], tonumber(argv[at + 1]))) do rows[#rows + 1] = row_of(keys, id) end
  return rows
end

-- Leave of a fact only that it was there.
local function forget_one(keys, id, ms, ttl_ms)
  local key = key_of(keys, id)
  local kept = redis.call('HMGET', key, 'scope', 'created', 'n', 'prev', 'next')
  if not kept[1] then return 0 end
  redis.call('DEL', key)
  redis.call('HSET', key, 'owner', kept[1], 'created', kept[2], 'gone', whole(ms))
  for n, name in ipairs({'n', 'prev', 'next'}) do
    if kept[2 + n] then redis.call('HSET', key, name, kept[2 + n]) end
  end
  if ttl_ms ~= '0' then redis.call('PEXPIRE', key, ttl_ms) end
  if tonumber(kept[3] or '1') > 1 then outlive(keys, id, nth(id, tonumber(kept[3]))) end
  return 1
end

-- ARGV  scopes  id  '1' for the whole chain  how many of it at most  how long it is known that it was there, in ms; 0 ever
-- Replies how many were forgotten
local function forget(keys, argv)
  local scopes, at = open_scopes(argv, 1)
  local ms, count = math.floor(now_us() / 1000), 0
  local ids = chain(keys, scopes, argv[at], argv[at + 1] == '1' and tonumber(argv[at + 2]) or 1)
  for _, id in ipairs(ids) do count = count + forget_one(keys, id, ms, argv[at + 3]) end
  return count
end

-- Reading -------------------------------------------------------------------

local function is_valid(from, to, ms) return tonumber(from) <= ms and ms < tonumber(to) end

-- What is believed now under a key.
-- ARGV  id that the key leads to   Replies a row, or nil
local function by_key(keys, argv)
  local found = latest(keys, argv[1])
  if not found or found.ended or not is_valid(found.from, found.to, math.floor(now_us() / 1000)) then return false end
  return row_of(keys, found.id)
end

local function is_ready(index)
  local reply = redis.pcall('FT.INFO', index)
  if reply.err then return '0' end
  for n = 1, #reply, 2 do
    local name = type(reply[n]) == 'table' and reply[n].ok or reply[n]
    if name == 'indexing' then
      local value = type(reply[n + 1]) == 'table' and reply[n + 1].ok or reply[n + 1]
      return tostring(value) == '0' and '1' or '0'
    end
  end
  return '0'
end

-- Run queries, and bring what they find, each fact once.
-- ARGV  1 fingerprint, or '' without vectors  2 valid when: ms, '' now, 'any'  3 '1' to say whether the index is ready
--       then n, the n words of a query without FT.SEARCH, whose last one is replaced by the time; n, ...
--       a query brings its score, or one field, with each id
-- Replies {'1' if ready or '' if not asked, ms, {{id, score, id, score, ...}, ...}, {row, row, ...}}; no row of what is
-- not valid then
local function find(keys, argv)
  if argv[1] ~= '' then check_embedder(keys[1], argv[1]) end
  local ms = tonumber(argv[2]) or math.floor(now_us() / 1000)
  local lists, rows, seen, at = {}, {}, {}, 4
  while argv[at] do
    local last = at + tonumber(argv[at])
    argv[last] = whole(ms)
    local reply, list = redis.call('FT.SEARCH', unpack(argv, at + 1, last)), {}
    local n = 2
    while reply[n] do
      local id, score = reply[n]:match('{([^}]*)}'), reply[n + 1]
      if type(score) == 'table' then score = score[2] end
      if not seen[id] then
        local row = row_of(keys, id)
        -- Its time may be over while the index still names it.
        if row and not row[15] and (argv[2] == 'any' or is_valid(row[8], row[9], ms)) then rows[#rows + 1] = row end
        seen[id] = true
      end
      list[#list + 1], list[#list + 2] = id, score or ''
      n = n + 2
    end
    lists[#lists + 1] = list
    at = last + 1
  end
  return {argv[3] == '1' and is_ready(keys[1]) or '', whole(ms), lists, rows}
end

redis.register_function('rtmem_v1_facts_write', write)
redis.register_function('rtmem_v1_facts_update', update)
-- Freeing, and reading, must work when Redis is full.
redis.register_function{function_name = 'rtmem_v1_facts_invalidate', callback = invalidate, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_facts_forget', callback = forget, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_facts_history', callback = history, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_facts_by_key', callback = by_key, flags = {'no-writes'}}
redis.register_function{function_name = 'rtmem_v1_facts_find', callback = find, flags = {'no-writes'}}
