-- The index.

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

-- Freeing, and reading, must work when Redis is full.
redis.register_function{function_name = 'rtmem_v1_cache_setup', callback = setup, flags = {'allow-oom'}}
