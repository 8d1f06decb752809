-- Leases: who computes an answer, and those who wait for it.

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

-- Freeing, and reading, must work when Redis is full.
redis.register_function{function_name = 'rtmem_v1_cache_acquire', callback = acquire, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_renew', callback = renew, flags = {'allow-oom'}}
redis.register_function{function_name = 'rtmem_v1_cache_release', callback = release, flags = {'allow-oom'}}
