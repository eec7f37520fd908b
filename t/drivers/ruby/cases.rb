# What the programs for Ruby's drivers share: TAP, the server, and the cases that each of
# them goes through.

require 'bigdecimal'
require 'timeout'

SERVER, HOST, USER, DATABASE = %w[SERVER HOST USER DATABASE].map { |name| ENV.fetch("DLOCK_#{name}") }
PORT = ENV.fetch('DLOCK_PORT').to_i
IS_POSTGRES = SERVER == 'postgres'

# What makes a backslash in a literal what it usually is not in this session, and what it usually is:
# nothing special and an escape; on PostgreSQL, before 19, the other way round.
BACKSLASHES = if IS_POSTGRES
                { unusual: "SELECT set_config('standard_conforming_strings', 'off', false) " \
                           "WHERE current_setting('server_version_num')::int < 190000",
                  usual: "SELECT set_config('standard_conforming_strings', 'on', false)" }
              else
                { unusual: "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
                  usual: 'SET SESSION sql_mode = DEFAULT' }
              end

$stdout.sync = true
$count = 0
$failed = 0

# One line of TAP.
def ok(passed, what)
  $count += 1
  $failed += 1 unless passed
  puts "#{passed ? 'ok' : 'not ok'} #{$count} - #{what}"
  passed
end

# The same value, and of the same class.
def same(is, wanted, what)
  ok(is.eql?(wanted), what) || puts("#   got #{is.inspect}, wanted #{wanted.inspect}")
end

def done
  puts "1..#{$count}"
  exit($failed.zero? ? 0 : 1)
end

# What a call ends with if it does not end well.
def error_of
  yield
  nil
rescue StandardError, Timeout::Error => e
  e
end

# Wait until something is so.  Answers whether it is.
def becomes
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 180
  until (is = yield) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    sleep 0.05
  end
  is
end

# Go through the cases with a driver, which has the methods
#
#   connect                              a new connection
#   close(connection)                    end it
#   value(connection, sql, *arguments)   the value of an expression with ?, as it arrives
#   transaction(connection) { ... }      in a transaction of the driver's own
#   guard(connection, name, owner, token)
#   set(connection, statement)           execute it, for the connection or more of them
#   kind_of(error)                       what doc/drivers.md says that it is: lost, blocked,
#                                        misuse, deadlock or gone
#   durations                            more times to live, with their seconds
#   token(value), yes, no                a token as a whole number; what true and false are
#
# Answers a connection.
def driver_cases(driver)
  mine = driver.connect
  second = driver.connect
  ask = ->(sql, *arguments) { driver.value(mine, sql, *arguments) }
  ask_second = ->(sql, *arguments) { driver.value(second, sql, *arguments) }
  kind_of_error = lambda do |&call|
    error = error_of(&call)
    error && driver.kind_of(error)
  end

  # names, whatever a backslash is in a literal
  BACKSLASHES.each do |kind, statement|
    driver.set(mine, statement)
    ["it's", 'C:\\jobs\\x', 'a\\', "x\\' OR '", 'café"'].each do |name|
      what = "#{name}, with the #{kind} backslash"
      same(error_of { ask.('dlock_acquire(?, ?, ?)', name, 'names', 30) }, nil, what)
      # without the driver's help with its letters
      literal = name.unpack1('H*')
      literal = IS_POSTGRES ? "convert_from(decode('#{literal}', 'hex'), 'UTF8')" : "x'#{literal}'"
      same(ask.("dlock_is_free(#{literal})"), driver.no, "#{what}: that name is held")
    end
    ask.('dlock_release_all(?)', 'names')
  end

  # numbers
  ttls = {
    30 => 30,
    30.5 => 30.5,
    BigDecimal('31.25') => 31.25,
    '40' => 40,
    '5 minutes' => 300
  }
  ttls.merge(driver.durations).each do |ttl, seconds|
    what = "ttl #{ttl.class} #{ttl}"
    ok(ask.('dlock_acquire(?, ?, ?)', what, 'me', ttl), what)
    left = ask.('dlock_remaining(?, ?)', what, 'me').to_f
    ok(left > seconds - 20 && left <= seconds, "#{what}: as long as that")
  end
  first = ask.('dlock_acquire(?, ?, ?, ?, ?)', 'waits', 'me', 600, 60.5, 'request-1')
  number = driver.token(first)
  ok(number.is_a?(Integer) && number.positive?, 'a token is a whole number')
  same(ask.('dlock_acquire(?, ?, ?, ?, ?)', 'waits', 'me', 600, '60500 ms', 'request-1'), first, 'the same request again: the same token')

  # token, limit, nil, booleans
  same(ask.('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, first), driver.yes, 'renewed by its token, as it came')
  same(ask.('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, number), driver.yes, 'renewed by its token, a whole number')
  same(ask.('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, number + 1), driver.no, 'not by another')
  same(ask.('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, nil), driver.yes, 'nil: by whichever it has')
  ok(ask.('dlock_acquire_permit(?, ?, ?, ?)', 'permits', 'me', 30, 2), 'a limit')
  same(ask.('dlock_acquire(?, ?, ?)', 'waits', 'other', 30), nil, 'nil: somebody has it')
  same(ask.('dlock_release(?, ?)', 'waits', 'me'), driver.yes, 'released')
  same(ask.('dlock_release(?, ?)', 'waits', 'me'), nil, 'nil: nobody has it')

  # guards and errors
  number = driver.token(ask.('dlock_acquire(?, ?, ?)', 'guarded', 'me', 600))
  blocked = nil
  error = error_of do
    driver.transaction(mine) do
      driver.guard(mine, 'guarded', 'me', number)
      # what the guard keeps until its transaction ends
      if IS_POSTGRES
        ask_second.("set_config('lock_timeout', '200ms', false)")
        blocked = kind_of_error.call { ask_second.('dlock_acquire(?, ?, ?, ?)', 'guarded', 'other', 30, 600) }
        ask_second.("set_config('lock_timeout', '0', false)")
      else
        blocked = kind_of_error.call { ask_second.('dlock_downgrade(?, ?)', 'guarded', 'me') }
      end
      same(ask.('1').to_i, 1, 'a statement after the guard')
    end
  end
  same(error, nil, "a guard in a transaction of the driver's own")
  same(blocked, 'blocked', 'an error: blocked')
  lost = kind_of_error.call { driver.transaction(mine) { driver.guard(mine, 'guarded', 'me', number + 1) } }
  same(lost, 'lost', 'an error: lost')
  same(kind_of_error.call { ask.('dlock_acquire(?, ?, ?)', '', 'me', 30) }, 'misuse', 'an error: misuse, an empty name')
  same(kind_of_error.call { ask.('dlock_acquire(?, ?, ?)', 'x', 'me', '3 apples') }, 'misuse', 'an error: misuse, no time')
  same(kind_of_error.call { ask.('dlock_acquire(?, ?, ?)', 'x', nil, 30) }, 'misuse', 'an error: misuse, nil')
  same(kind_of_error.call { ask.('dlock_acquire_session(?, ?, ?)', 'guarded', 'me', 600) }, 'misuse',
       'an error: misuse, another kind of lease')

  # who waits for itself
  ask.('dlock_acquire_permit(?, ?, ?, ?)', 'itself', 'me', 30, 1)
  same(kind_of_error.call { ask.('dlock_acquire_permit(?, ?, ?, ?, ?)', 'itself', 'me', 30, 1, 60) }, 'deadlock', 'an error: deadlock')

  # session leases
  third = driver.connect
  ok(driver.value(third, 'dlock_acquire_session(?, ?, ?)', 'session', 'me', 30), 'a session lease')
  driver.close(third)
  ok(ask.('dlock_acquire(?, ?, ?, ?)', 'session', 'other', 30, 60), 'it ends with its connection')

  # a Timeout is not for the server
  ask.('dlock_acquire(?, ?, ?)', 'timeout', 'other', 60)
  fourth = driver.connect
  released = Thread.new do
    becomes { ask.("(SELECT count(*) FROM dlock.waiters WHERE name = 'timeout')").to_i == 1 }
    sleep 6 # longer than the Timeout, for which some drivers' calls do not end
    ask.('dlock_release(?, ?)', 'timeout', 'other')
  end
  error = error_of { Timeout.timeout(5) { driver.value(fourth, 'dlock_acquire(?, ?, ?, ?)', 'timeout', 'me', 60, 60) } }
  released.join
  ok(error.is_a?(Timeout::Error), 'Timeout: the call has answered nothing')
  ok(becomes { ask.('dlock_owner(?)', 'timeout') == 'me' }, 'and the lease was granted')
  driver.close(fourth)

  # gone
  if IS_POSTGRES
    ask.('pg_terminate_backend(?)', ask_second.('pg_backend_pid()').to_i)
  else
    driver.execute(mine, "KILL #{ask_second.('connection_id()')}")
  end
  2.times do |time|
    same(kind_of_error.call { ask_second.('dlock_acquire(?, ?, ?)', 'x', 'me', 30) }, 'gone',
         time.zero? ? 'an error: the server is gone' : 'and again')
  end
  mine
end
