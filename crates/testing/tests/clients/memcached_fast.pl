# What applications do with a memcached, by Cache::Memcached::Fast.
#
# Usage: memcached_fast.pl HOST PORT

use strict;
use utf8;
use warnings;

use Cache::Memcached::Fast;
use Test::More;

my $address = join ':', @ARGV;

sub client {
    Cache::Memcached::Fast->new({ io_timeout => 30, connect_timeout => 30, utf8 => 1, @_ });
}

sub commands {
    my $client = client(servers => [$address], namespace => 'fast:', max_size => 4 << 20);
    ok $client->server_versions->{$address};
    ok $client->flush_all->{$address};

    ok $client->set('word', 'one');
    is $client->get('word'), 'one';
    ok !$client->add('word', 'two');
    ok $client->replace('word', 'three');
    ok $client->append('word', '!') && $client->prepend('word', '?');
    is $client->get('word'), '?three!';
    ok $client->touch('word', 1000);
    is $client->gat(1000, 'word'), '?three!';
    ok $client->delete('word');
    is $client->get('word'), undef;
    for my $stored (qw(replace append prepend)) {
        ok !$client->$stored('word', 'no such key'), $stored;
    }
    ok !$client->touch('word', 1000) && !$client->delete('word');

    ok !$client->incr('number');
    ok $client->add('number', 1);
    is $client->incr('number', 9), 10;
    is $client->decr('number', 20), '0E0';

    my $found = $client->gets('number');
    ok $client->cas('number', $$found[0], 7);
    is $client->cas('number', $$found[0], 8), '', 'another has changed it';
    is $client->gats(1000, 'number')->[1], 7;

    ok $client->set('слово', { list => [1 .. 9], text => 'ünï' });
    is_deeply $client->get('слово'), { list => [1 .. 9], text => 'ünï' };
    my $large = join '', map { chr($_ % 256) } 1 .. 1_000_000;
    ok $client->set('large', $large);
    ok $client->get('large') eq $large;
    is $client->set('too-large', 'x' x (2 << 20)), undef;
}

sub many {
    my $client = client(servers => [$address]);
    my %many = map { ("key$_", "value$_" x ($_ % 50)) } 1 .. 2000;
    ok !grep { !$_ } $client->set_multi(map { [$_, $many{$_}] } keys %many);
    is_deeply $client->get_multi(keys %many, 'absent'), \%many;
    my $found = $client->gets_multi(keys %many);
    ok !grep { !$_ } $client->cas_multi(map { [$_, @{ $$found{$_} }] } keys %many);
    ok !grep { $_ } $client->cas_multi(map { [$_, @{ $$found{$_} }] } keys %many);
    ok !grep { !$_ } $client->touch_multi(map { [$_, 1000] } keys %many);
    ok !grep { !$_ } $client->delete_multi(keys %many);
    is_deeply $client->gat_multi(1000, keys %many), {};
}

# Requests that nobody waits for: with noreply, and with answers that are read later.
sub unawaited {
    for my $client (client(servers => [{ address => $address, noreply => 1 }]), client(servers => [$address], nowait => 1)) {
        $client->flush_all;
        $client->set("key$_", $_) for 1 .. 2000;
        $client->add('key1', 'not stored');
        $client->append('key2', '0');
        $client->incr("key$_") for 1 .. 1000;
        $client->decr('absent');
        $client->delete("key$_") for 1001 .. 2000;
        $client->touch('key1', 1000);
        $client->nowait_push;
        is_deeply $client->get_multi(map { "key$_" } 1 .. 2000), { key2 => 21, map { ("key$_", $_ + 1) } 1, 3 .. 1000 };
    }
}

commands();
many();
unawaited();
done_testing();
