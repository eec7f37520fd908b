# examples/adapters/lease.rb, with ActiveRecord.
# speaks: postgres mariadb mysql
# needs: ruby ruby-activerecord ruby-pg ruby-mysql2

require_relative 'cases'
require 'active_record'
require_relative '../../../examples/adapters/lease'

ActiveRecord::Base.establish_connection(
  adapter: IS_POSTGRES ? 'postgresql' : 'mysql2',
  host: HOST, port: PORT, database: DATABASE, username: USER, pool: 10
)

def ask(call, *arguments)
  connection = ActiveRecord::Base.connection
  connection.uncached { connection.select_value(ActiveRecord::Base.sanitize_sql_array(["SELECT #{call}", *arguments])) }
end

same(Lease.hold('report', ttl: 600) { |lease| same(ask('dlock_owner(?)', 'report'), lease.owner, 'work runs under a lease') }, true, 'to its end')
same(ask('dlock_owner(?)', 'report'), nil, 'which is given back')
Lease.hold('busy', ttl: 600) do |lease|
  ok(lease.token.positive?, 'a lease has a token')
  same(Lease.hold('busy', ttl: 600) { ok(false, 'a second one') }, false, 'a second one is refused')
  lease.check!
  ActiveRecord::Base.transaction { lease.guard! }
  ask('dlock_release(?, ?)', 'busy', lease.owner)
  same(error_of { ActiveRecord::Base.transaction { lease.guard! } }.class, Lease::Lost, 'a guard of one that is lost')
end
same(error_of { Lease.hold('fails', ttl: 600) { raise KeyError } }.class, KeyError, 'an error of the work')
same(ask('dlock_owner(?)', 'fails'), nil, 'gives the lease back, too')
ask('dlock_acquire(?, ?, ?)', 'turn', 'somebody', 1)
same(Lease.hold('turn', ttl: 600, wait: 180) { nil }, true, 'one that waits for its turn')

# renewed by the thread, while a transaction is open here, and though queries are cached; on a
# busy machine it may be lost
renewed = [3, 9, 30, 90].any? do |seconds|
  is_kept = false
  ActiveRecord::Base.cache do
    Lease.hold("long #{seconds}", ttl: seconds) do |lease|
      ActiveRecord::Base.transaction do
        first = lease.until
        sleep 0.02 until lease.until > first + (seconds / 4.0) || lease.lost?
      end
      is_kept = !lease.lost?
    end
  end
  is_kept
end
ok(renewed, 'a lease is renewed')
Lease.hold('lost', ttl: 6) do |lease|
  ask('dlock_release(?, ?)', 'lost', lease.owner)
  sleep 0.02 until lease.lost?
  same(error_of { lease.check! }.class, Lease::Lost, 'one that is lost says so')
end
done
